# SPDX-License-Identifier: GPL-2.0-only
# Runs in the lab: sh inside.sh drover|eevdf JOB... A row of the table for each, and the reasons below where it fails.
# Under eevdf no row is judged: what the quiet VM had is for comparison.
cd /attacks
PATH=/attacks:$PATH
under=$1
good=ok
shift

# --- what jobs may call ---

# As the user alice, who may use /dev/kvm. No word may need quotes.
as_alice() {
	su alice -s /bin/sh -c "exec $*"
}

# A busy VM of root's: busy NAME VCPUS; its process is in $pid.
busy() {
	command drover guest --name "$1" --vcpus "$2" --workload '{"kind":"cpu"}' --stats "/tmp/$1.stats" \
		--loops-per-ms 1000 2>"/tmp/no-$1" &
	pid=$!
}

# Confines all threads of a process: pin MASK PID.
pin() {
	for task in "/proc/$2/task/"*; do
		taskset -p "$1" "${task##*/}" >/dev/null
	done
}

# A check that failed: one line for the table's reader.
wrong() {
	echo "        $name: $*" >>/tmp/wrong
}

up_ms() {
	sed 's/\.\([0-9]*\) .*/\10/' /proc/uptime
}

# Waits up to SECONDS until a command succeeds: within SECONDS COMMAND...
within() {
	until_ms=$(($(up_ms) + $1 * 1000))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(up_ms)" -lt "$until_ms" ] || return 1
		usleep 100000
	done
}

# CPU time of all that `attack` started, in % of a pCPU, over SECONDS: attackers_part SECONDS
attackers_part() {
	used=$(attackers_us) begun=$(up_ms)
	sleep "$1"
	echo $((($(attackers_us) - used) / 10 / ($(up_ms) - begun)))
}

attackers_us() {
	sed -n 's/^usage_usec //p' $ATTACKERS/cpu.stat
}

# --- the host ---

ATTACKERS=/sys/fs/cgroup/attackers
STATE=/sys/kernel/sched_ext/state

prepare_host() {
	echo 'alice:x:1000:1000::/:/bin/sh' >>/etc/passwd
	chmod 666 /dev/kvm
	mkdir -p $ATTACKERS
	dmesg -n 1
}

# The kernel's complaints since it was last asked.
complaints() {
	dmesg -c | grep -E 'BUG|WARNING|Oops|stall|hung task|Out of memory|lockup|sched_ext:.*(disabled|error)'
}

scheduling() {
	grep -q scheduling /tmp/daemon.log && [ "$(cat $STATE)" = enabled ]
}

answers() {
	timeout 5 drover vm list
}

start_daemon() {
	drover serve >/tmp/daemon.log 2>&1 &
	daemon=$!
	within 60 scheduling || { echo 'attacks: drover serve does not come up:'; cat /tmp/daemon.log; exit 3; }
}

# While the attack runs.
answers_soon() {
	[ "$list_ms" ] || return 0
	asked=$(up_ms)
	answers >/dev/null || true
	took=$(($(up_ms) - asked))
	[ $took -le "$list_ms" ] || wrong "drover vm list took $took ms; $list_ms is right"
}

# It goes on from attack to attack, as long as it is well.
need_daemon() {
	if [ -n "${daemon:-}" ]; then
		if kill -0 "$daemon" && scheduling && within 10 answers; then
			return
		fi
		kill -9 "$daemon"
		wait "$daemon"
	fi
	start_daemon
}

# --- an attack ---

quiet_listed() {
	drover vm list | grep -q '^quiet '
}

# A field of the quiet VM, ms: quiet_ms KEY
quiet_ms() {
	timeout 10 drover vm list --json | awk -v key="\"$1\":" '
		$1 == "\"name\":" { here = $2 == "\"quiet\"," }
		here && $1 == key { printf "%.1f", $2 }'
}

start_quiet() {
	busy quiet "$vcpus"
	quiet=$pid
	within 10 quiet_listed || wrong 'the quiet VM was not found'
	drover vm set quiet --shares "$shares" || wrong 'the quiet VM has no shares'
}

# In a cgroup without settings, by which it is ended.
start_attack() {
	(
		echo 0 >$ATTACKERS/cgroup.procs
		attack
		wait
	) >/tmp/attack.log 2>&1 &
	sleep "$settle"
}

end_attack() {
	echo 1 >$ATTACKERS/cgroup.kill
	within 10 grep -q 'populated 0' $ATTACKERS/cgroup.events || wrong 'its processes do not end'
}

judge() {
	grep '^no attack' /tmp/attack.log >/tmp/no-attack
	for missing in /tmp/no-*; do
		[ ! -s "$missing" ] || wrong "$(head -n 1 "$missing")"
	done
	kill -0 "$quiet" 2>/dev/null || wrong 'the quiet VM was killed'
	ratio=$(awk -v had="$had" -v part="$part" 'BEGIN { printf "%.2f", had / part }')
	awk -v had="$had" -v part="$part" 'BEGIN { exit had < 0.98 * part }' ||
		wrong "the quiet VM had $ratio of its part; 0.98 is right"
	if [ -z "$longest" ] || [ -z "$guaranteed" ]; then
		wrong 'how long the quiet VM waited is not known: the daemon did not answer within 10 s'
	else
		# As much longer as real-time tasks take of a pCPU.
		awk -v longest="$longest" -v may="$guaranteed" -v taken="$real_time" \
			'BEGIN { exit longest > may * 100 / (100 - taken) }' ||
			wrong 'the quiet VM waited for longer than is guaranteed'
	fi
}

judge_daemon() {
	daemon_is=lives
	if ! kill -0 "$daemon" 2>/dev/null || [ "$(cat $STATE)" != enabled ]; then
		daemon_is=ENDED
		wrong "the daemon: $(tail -n 1 /tmp/daemon.log)"
	elif ! within 10 answers; then
		daemon_is=DEAF
		wrong 'the daemon does not answer within 10 s'
	fi
}

judge_host() {
	host_is=lives
	complaints >/tmp/complaints && { host_is=ERROR; wrong "the kernel: $(head -n 1 /tmp/complaints)"; }
}

run_job() {
	name=${1%.job}
	title=$(sed -n '2s/^# //p' "$1")
	vcpus=2 shares=4000 part=200 settle=1 seconds=3 real_time=0 list_ms=1000
	prepare() { :; }
	check() { :; }
	undo() { :; }
	. "./$1"
	rm -f /tmp/wrong /tmp/no-*
	touch /tmp/wrong
	need_daemon
	complaints >/dev/null
	start_quiet
	prepare >/dev/null
	start_attack
	had=$(part "$seconds" "$quiet")
	guaranteed=$(quiet_ms guaranteed_delay_ms)
	answers_soon
	check >/dev/null
	end_attack
	undo >/dev/null
	longest=$(quiet_ms longest_ready_ms)
	judge
	judge_daemon
	judge_host
	kill -9 "$quiet"
	wait "$quiet"
	[ -s /tmp/wrong ] && verdict=FAIL || verdict=$good
	printf '%-4s  %-16s  %-58s  %6s %8s %6s  %8s %10s  %-6s  %s\n' "$verdict" "$name" "$title" "$had" "$part" \
		"$ratio" "${longest:--}" "${guaranteed:--}" "$daemon_is" "$host_is"
	cat /tmp/wrong
}

end_daemon() {
	kill "$daemon"
	wait "$daemon"
}

# Without Drover there is no daemon, no order is given, and nothing is found wrong. The quiet VM has a cgroup, as a
# manager makes it, and the attackers have another, of the same weight.
if [ "$under" = eevdf ]; then
	good=-
	for unneeded in drover wrong need_daemon end_daemon; do
		eval "$unneeded() { :; }"
	done
	start_quiet() {
		busy quiet "$vcpus"
		quiet=$pid
		echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
		mkdir -p /sys/fs/cgroup/quiet
		echo "$quiet" >/sys/fs/cgroup/quiet/cgroup.procs
	}
	judge_daemon() { daemon_is=-; }
fi

prepare_host
for job; do
	echo "begun $job"
	run_job "$job" 2>/tmp/errors
done
echo 'begun nothing'
end_daemon
