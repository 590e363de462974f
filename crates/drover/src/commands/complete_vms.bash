
# Names of VMs that are here, and values of the options of `drover vm`.
_drover_vms() {
    local cur=${COMP_WORDS[COMP_CWORD]}
    case "${COMP_WORDS[1]}-${COMP_WORDS[2]}" in
        vm-set|vm-list|numa-advise)
            if [[ $COMP_CWORD -eq 3 && $cur != -* ]]; then
                COMPREPLY=($(compgen -W "$(drover vm list --json 2>/dev/null |
                    sed -n 's/^    "name": "\(.*\)",$/\1/p')" -- "$cur"))
                return
            fi
            ;;
    esac
    _drover "$@"
}
complete -F _drover_vms -o bashdefault -o default drover
