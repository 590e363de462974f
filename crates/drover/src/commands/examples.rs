// SPDX-License-Identifier: GPL-2.0-only
//! What man pages have beside what follows from the command line: examples, and what an exit status means.

/// What the page of a command has.
pub struct Page {
    /// The command, without `drover`.
    pub command: &'static str,
    /// What somebody wants, and the command line for it.
    pub examples: &'static [(&'static str, &'static str)],
    /// What statuses mean that mean something of their own.
    pub statuses: &'static [(u8, &'static str)],
}

/// What a status means, unless the command says something else.
pub const STATUSES: [(u8, &str); 3] = [
    (0, "It is done."),
    (1, "It is not; a line on standard error says why."),
    (2, "The command line is not understood."),
];

const fn page(command: &'static str, examples: &'static [(&'static str, &'static str)]) -> Page {
    Page { command, examples, statuses: &[] }
}

/// One for each command.
pub const PAGES: &[Page] = &[
    Page {
        command: "check",
        examples: &[(
            "Is this host fit for Drover, and what has to be done first?",
            "drover check",
        )],
        statuses: &[(0, "Nothing is missing."), (1, "Something is missing.")],
    },
    Page {
        command: "status",
        examples: &[
            ("Is Drover in charge here, and is all kept that was asked?", "drover status"),
            ("What can still be reserved, for a program:", "drover status --json"),
        ],
        statuses: &[(0, "Drover is in charge."), (1, "It is not, or does not answer.")],
    },
    page(
        "top",
        &[
            ("Watch where the time of VMs goes:", "drover top"),
            ("Write a line of CSV each 5 s, for an hour:", "drover top --batch -d 5 -n 720"),
            ("Which VMs waited in the last ten minutes, and when?", "drover top --since 10m"),
        ],
    ),
    page(
        "web",
        &[
            ("Look at the last day of all VMs in a browser:", "drover web"),
            ("At any port that is free:", "drover web --port 0"),
        ],
    ),
    page(
        "why",
        &[("Why was VM web slow in the last five minutes?", "drover why web --seconds 300")],
    ),
    page(
        "advise",
        &[
            ("What is to be tuned on this host?", "drover advise"),
            (
                "What was, on the host of a recording, for a program:",
                "drover advise busy.rec --json",
            ),
        ],
    ),
    page(
        "observe",
        &[
            ("Keep books, as the unit drover-observe does:", "drover observe"),
            ("Let the group drover see the VMs of all users:", "drover observe --readers-see-all"),
        ],
    ),
    page("record", &[("Record for a minute:", "drover record busy.rec --seconds 60")]),
    page(
        "report",
        &[
            (
                "Draw two recordings side by side:",
                "drover report before.rec after.rec --html page.html",
            ),
            ("Make a trace for ui.perfetto.dev:", "drover report busy.rec --perfetto busy.json"),
        ],
    ),
    page(
        "whatif",
        &[
            (
                "Ten more VMs like web on the host that was recorded: who would wait?",
                "drover whatif busy.rec --add 10xweb",
            ),
            (
                "Without db, on 48 pCPUs, under both schedulers:",
                "drover whatif host.toml --remove db --pcpus 48 --scheduler eevdf,drover",
            ),
            ("With high shares for web:", "drover whatif host.toml --set web.shares=high"),
        ],
    ),
    page(
        "scenario from",
        &[(
            "Make a scenario of a recording, to read and to change:",
            "drover scenario from busy.rec --out busy.toml",
        )],
    ),
    Page {
        command: "sweep",
        examples: &[
            ("Run what a plan says on all CPUs of this machine:", "drover sweep plan.toml"),
            ("Go on where it was interrupted:", "drover sweep plan.toml --resume"),
            (
                "Run it on a cluster of Slurm, in a folder that all its machines see:",
                "drover sweep plan.toml --engine slurm --out /shared/sweep",
            ),
        ],
        statuses: &[
            (0, "All shards are done, and nothing is wrong with any."),
            (1, "Some are missing, a run has a fault, or a trial broke something: a line says so."),
        ],
    },
    page("export", &[("A recording for a spreadsheet:", "drover export busy.rec")]),
    Page {
        command: "serve",
        examples: &[
            ("Schedule this host until Ctrl-C:", "drover serve"),
            ("Say what would be done with which VMs:", "drover serve --dry-run"),
            ("Let the group drover see the VMs of all users:", "drover serve --readers-see-all"),
        ],
        statuses: &[
            (0, "It was stopped; the kernel's own scheduler has everything back."),
            (1, "It did not start; a line on standard error says why."),
            (
                70,
                "The kernel threw the scheduler out, or it gave the host back: the line says why.",
            ),
        ],
    },
    page(
        "config check",
        &[
            ("Is the configuration valid?", "drover config check"),
            ("Is another file?", "drover config check drover.toml.new"),
        ],
    ),
    page("config export", &[("Make a configuration of what is in force:", "drover config export")]),
    page(
        "vm list",
        &[
            ("All VMs, who waited longest first:", "drover vm list --sort ready"),
            ("The vCPUs of those that are called web-something:", "drover vm list -v 'web-*'"),
            ("Where each setting of VM web comes from:", "drover vm list --why web"),
        ],
    ),
    page("vm orders", &[("What was ordered for VMs:", "drover vm orders")]),
    page("vm forget", &[("Leave VM web to other sources again:", "drover vm forget web")]),
    page(
        "vm set",
        &[
            (
                "Guarantee VM web one and a half pCPUs, and give it twice the shares of others:",
                "drover vm set web --reservation 150% --shares high",
            ),
            (
                "What would that change, and would it be taken?",
                "drover vm set web --reservation 150% --dry-run",
            ),
            ("A limit until VM build ends:", "drover vm set build --limit 200% --live"),
            ("Leave the limit to other sources again:", "drover vm set web --limit default"),
        ],
    ),
    page("pool list", &[("All pools, and what can still be reserved:", "drover pool list")]),
    page(
        "pool add",
        &[("A pool with two pCPUs guaranteed:", "drover pool add prod --reservation 200%")],
    ),
    page(
        "pool set",
        &[
            ("Limit a pool:", "drover pool set test --limit 150%"),
            ("Would more be taken?", "drover pool set prod --reservation 400% --dry-run"),
        ],
    ),
    page("pool remove", &[("Remove a pool nobody is in:", "drover pool remove test")]),
    page("partition list", &[("All partitions:", "drover partition list")]),
    page(
        "partition add",
        &[(
            "pCPUs 2 and 3 for VMs that wait for devices:",
            "drover partition add io --cpus 2-3 --policy credit --slice 3ms",
        )],
    ),
    page("partition set", &[("Give it another pCPU:", "drover partition set io --cpus 1-3")]),
    page(
        "partition auto",
        &[
            ("What would be arranged, and why?", "drover partition auto --dry-run"),
            ("Do so from now on:", "drover partition auto --on"),
        ],
    ),
    page("partition remove", &[("Give its pCPUs back:", "drover partition remove io")]),
    page("set list", &[("All sets:", "drover set list")]),
    page(
        "set add",
        &[
            ("Keep VMs together on a node:", "drover set add shop --vms web,db --kind affine"),
            (
                "Keep them apart, whatever it costs:",
                "drover set add rack --vms db1,db2 --kind anti-affine --hard",
            ),
        ],
    ),
    page("set remove", &[("Remove a set:", "drover set remove shop")]),
    page("numa list", &[("Which VMs live on which node?", "drover numa list")]),
    page("numa plan", &[("Who would be moved now, and why?", "drover numa plan")]),
    page(
        "numa advise",
        &[("Which virtual nodes should the guest of VM big have?", "drover numa advise big")],
    ),
    page("undo", &[("Take the last order back:", "drover undo")]),
    Page {
        command: "metrics",
        examples: &[("For node_exporter's textfile collector:", "drover metrics")],
        statuses: &[
            (0, "A daemon answered."),
            (1, "None did; drover_up 0 was printed all the same."),
        ],
    },
    Page {
        command: "run",
        examples: &[
            (
                "Run a scenario in a virtual host, and hold it to what it expects:",
                "drover run scenarios/try.toml --on lab --check",
            ),
            (
                "The same in the simulator, with all figures in a file:",
                "drover run scenarios/try.toml --on sim --json out.json",
            ),
        ],
        statuses: &[(1, "It could not be run, or, with --check, something did not hold.")],
    },
    page(
        "guest",
        &[(
            "A VM with two busy vCPUs:",
            "drover guest --name a --vcpus 2 --workload '{\"kind\":\"cpu\"}' --stats /tmp/a",
        )],
    ),
    Page {
        command: "lab exec",
        examples: &[(
            "Run a command on a kernel of its own:",
            "drover lab exec --kernel 6.18 uname -r",
        )],
        statuses: &[
            (
                0,
                "The command ended with status 0. If it ends with another one, that is the status.",
            ),
            (1, "It could not be run, or ended with status 1."),
        ],
    },
];
