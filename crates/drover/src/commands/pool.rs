// SPDX-License-Identifier: GPL-2.0-only
//! `drover pool list`, `drover pool add`, `drover pool set`, `drover pool remove`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use drover_core::asked::DEFAULT;
use drover_core::asked::Limit;
use drover_core::percent;
use drover_core::settings::Cosched;
use drover_core::shares::Shares;
use drover_core::tree::PoolChange;
use drover_host::control::{Answer, Request, ask};
use drover_host::status::{PartitionStatus, PoolStatus};

use super::ask::{Daemon, answer, idle_limit, percent_of, print_json, rehearse, table};
use super::given::one_of;

#[derive(Subcommand)]
pub enum Pool {
    /// Show all pools and what they get.
    List {
        /// As JSON, for programs.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Make a pool.
    Add {
        /// Its name.
        name: String,
        #[command(flatten)]
        values: Values,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change a pool.
    Set {
        /// Its name.
        name: String,
        #[command(flatten)]
        values: Values,
        /// Say what would change, and whether it would be taken; change nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Remove a pool nobody is in.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(clap::Args)]
pub struct Values {
    /// The pool it is in, or host.
    #[arg(long)]
    parent: Option<String>,
    /// Shares among its siblings: 1 to 1000000, or low, normal, high: 2000, 4000, 8000.
    #[arg(long)]
    shares: Option<Shares>,
    /// CPU guaranteed to it: 150% is one pCPU and a half.
    #[arg(long, value_parser = percent::parse)]
    reservation: Option<u32>,
    /// The most CPU it may have, or none.
    #[arg(long)]
    limit: Option<Limit>,
    /// Whether reservations in it that exceed its own are taken from its parent.
    #[arg(long)]
    expandable: Option<bool>,
    /// How vCPUs of VMs in it are kept together, where these do not say.
    #[arg(long, value_parser = one_of(&Cosched::WORDS))]
    cosched: Option<Cosched>,
}

impl Values {
    fn change(self) -> PoolChange {
        PoolChange {
            parent: self.parent,
            shares: self.shares,
            reservation_mcpu: self.reservation,
            limit: self.limit,
            expandable: self.expandable,
            cosched: self.cosched,
        }
    }
}

pub fn run(pool: Pool) -> Result<ExitCode> {
    let (request, daemon) = match pool {
        Pool::List { json, daemon } => {
            list(json, &daemon.socket)?;
            return Ok(ExitCode::SUCCESS);
        }
        Pool::Add { name, values, daemon } => {
            (Request::AddPool { name, change: values.change() }, daemon)
        }
        Pool::Set { name, values, dry_run, daemon } => {
            let change = values.change();
            if change == PoolChange::default() {
                bail!("nothing to change is given; see `drover pool set --help`");
            }
            let request = Request::SetPool { name, change };
            if dry_run {
                rehearse(&daemon.socket, &request)?;
                return Ok(ExitCode::SUCCESS);
            }
            (request, daemon)
        }
        Pool::Remove { name, daemon } => (Request::RemovePool { name }, daemon),
    };
    ask(&daemon.socket, &request)?;
    if let Request::AddPool { name, change } | Request::SetPool { name, change } = &request {
        let limit_mcpu = change.limit.and_then(Limit::mcpu);
        if let Some(note) = idle_limit(&format!("pool {name}"), limit_mcpu, &daemon.socket)? {
            println!("{note}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool, socket: &Path) -> Result<()> {
    let pools = answer(socket, &Request::ListPools, |answer| match answer {
        Answer::Pools { pools } => Some(pools),
        _ => None,
    })?;
    if json {
        print_json(&serde_json::to_string_pretty(&pools)?);
        return Ok(());
    }
    if pools.is_empty() {
        println!("There are no pools; make one with `drover pool add`.");
    } else {
        print!("{}", overview(&pools));
    }
    let partitions = answer(socket, &Request::ListPartitions, |answer| match answer {
        Answer::Partitions { partitions } => Some(partitions),
        _ => None,
    })?;
    print!("{}", partitions.iter().filter_map(host_line).collect::<String>());
    Ok(())
}

/// What the host, or a partition beside `default`, has to promise, in a line.
pub fn host_line(partition: &PartitionStatus) -> Option<String> {
    let [size, host, free] =
        [partition.size_mcpu?, partition.host_mcpu?.into(), partition.free_mcpu?]
            .map(percent::text64);
    Some(match partition.name.as_str() {
        DEFAULT => {
            format!(
                "Host: {free} of {size} can still be reserved; {host} is kept for its own tasks.\n"
            )
        }
        name => format!("Partition {name}: {free} of {size} can still be reserved.\n"),
    })
}

/// A line for each pool, those within it below.
pub fn overview(pools: &[PoolStatus]) -> String {
    let titles = [
        "POOL<",
        "VMS",
        "SHARES",
        "RESERVED",
        "LIMIT",
        "EXPANDABLE<",
        "FREE",
        "OWED",
        "GOT",
        "FROM<",
    ];
    let row = |pool: &PoolStatus| {
        let indent = "  ".repeat(pool.depth.saturating_sub(1) as usize);
        vec![
            indent + &pool.name,
            pool.vms.to_string(),
            pool.shares.to_string(),
            percent::text(pool.reservation_mcpu),
            pool.limit_mcpu.map_or(Limit::Open, Limit::At).to_string(),
            if pool.expandable { "yes" } else { "no" }.to_owned(),
            percent::text64(pool.free_mcpu),
            percent_of(pool.owed_pcpus),
            percent_of(pool.got_pcpus),
            pool.origin.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = in_place(pools, None).into_iter().map(row).collect();
    table(&titles, &rows)
}

/// The pools within a parent, each followed by those within it.
fn in_place<'a>(pools: &'a [PoolStatus], parent: Option<&str>) -> Vec<&'a PoolStatus> {
    let inside = pools.iter().filter(|pool| pool.parent.as_deref() == parent);
    let with_children = |pool: &'a PoolStatus| {
        let mut those = vec![pool];
        those.extend(in_place(pools, Some(&pool.name)));
        those
    };
    inside.flat_map(with_children).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, parent: Option<&str>, depth: u32) -> PoolStatus {
        PoolStatus {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            depth,
            shares: 4000,
            reservation_mcpu: 2000,
            limit_mcpu: None,
            expandable: true,
            free_mcpu: 1500,
            vms: 1,
            owed_pcpus: Some(1.0),
            got_pcpus: Some(0.99),
            origin: "drover pool".to_owned(),
        }
    }

    #[test]
    fn children_stand_indented_below_their_parents() {
        let pools = [pool("b", None, 1), pool("a", None, 1), pool("c", Some("b"), 2)];
        let text = overview(&pools);
        let names: Vec<&str> = text.lines().skip(1).map(|line| &line[..5]).collect();
        assert_eq!(names, ["b    ", "  c  ", "a    "], "{text}");
    }
}
