
# Names of VMs that are here.
complete -c drover -n "__fish_seen_subcommand_from vm; and __fish_seen_subcommand_from set list" -f \
    -a '(drover vm list --json 2>/dev/null | string replace -rf \'^    "name": "(.*)",$\' \'$1\')'
