// SPDX-License-Identifier: GPL-2.0-only
//! Reads programs of guests, and refuses those that could never go on.

use super::format::{LockWord, ProgramTable, RoleTable, VmTable};
use crate::host::Host;
use crate::program::{
    DEPTH_MAX, IpiTo, LockKind, PV_SPIN_US, Program, ProgramLock, ProgramStep, RING_BYTES,
    ROUND_NS_MIN, Role, STEP_NS_MAX, STEP_TIMES_MAX, StepTime,
};
use crate::vm::Vm;
use crate::workload::Workload;
use drover_core::names::is_plain_name;
use drover_core::nearest::hint;
use drover_core::toml_file::{Read, Table};
use toml::Spanned;

/// The most steps of a role.
const STEPS_MAX: usize = 1000;

/// The words a step may begin with, and how each goes on.
const STEPS: &[(&str, &str)] = &[
    ("compute", "compute 20 us"),
    ("kernel", "kernel 5 us to 10 us"),
    ("take", "take LOCK"),
    ("release", "release LOCK"),
    ("meet", "meet BARRIER"),
    ("join", "join BARRIER"),
    ("sleep", "sleep 2 ms"),
    ("timer", "timer 1 ms"),
    ("ipi", "ipi one, ipi all or ipi 3"),
    ("io", "io 20 us, or io 20 us then 100 us"),
    ("wait", "wait QUEUE"),
    ("spawn", "spawn 4 QUEUE"),
    ("send", "send 50 KB"),
    ("forward", "forward"),
    ("transmit", "transmit"),
    ("pass", "pass 200 lines"),
    ("count", "count, or count 10"),
    ("repeat", "repeat 10"),
    ("for", "for 200 ms"),
    ("end", "end"),
];

/// Reads a workload of kind `program`.
pub(super) fn read_program(table: &Table<ProgramTable>, host: &Host) -> Read<Workload> {
    let mut program = Program {
        locks: read_locks(table)?,
        pv_spin_us: table.pv_spin_us.unwrap_or(PV_SPIN_US),
        ..Program::default()
    };
    let roles = table.tables::<RoleTable>("roles")?;
    match &table.steps {
        Some(_) if !roles.is_empty() => {
            return Err(table.error("steps", "both steps and roles", "move steps into a role"));
        }
        None if roles.is_empty() => {
            let what = "the program has no steps";
            return Err(table.error("", what, "add steps = [\"compute 20 us\", \"count\"]"));
        }
        None => {}
        Some(lines) => {
            let steps = read_steps(table, lines, &mut program)?;
            program.roles.push(Role { vcpus: None, steps });
        }
    }
    for role in &roles {
        check_role(role, &program.roles)?;
        let steps = read_steps(role, &role.steps, &mut program)?;
        program.roles.push(Role { vcpus: role.vcpus.clone(), steps });
    }
    check_queues(table, &program)?;
    if program.uses_link() && host.link_mbit_s.is_none() {
        let what = "steps of the network, on a host without a link";
        return Err(table.error("", what, "add link_mbit_s = 1000 to [host]"));
    }
    Ok(Workload::Program(Box::new(program)))
}

/// The locks, in the order of the file.
fn read_locks(table: &Table<ProgramTable>) -> Read<Vec<ProgramLock>> {
    let mut locks: Vec<_> = table.locks.iter().flatten().collect();
    locks.sort_by_key(|(name, _)| name.span().start);
    let lock = |(name, word): (&Spanned<String>, &LockWord)| {
        check_name(table, name.span().start, name.get_ref())?;
        let (kind, paravirtual) = match word {
            LockWord::Ticket => (LockKind::Ticket, false),
            LockWord::TestAndSet => (LockKind::TestAndSet, false),
            LockWord::TicketPv => (LockKind::Ticket, true),
            LockWord::TestAndSetPv => (LockKind::TestAndSet, true),
        };
        Ok(ProgramLock { name: name.get_ref().clone(), kind, paravirtual })
    };
    locks.into_iter().map(lock).collect()
}

/// Every vCPU of the VM has a role, and no role speaks of others. `table` is where to complain.
pub(super) fn check_vcpus(
    table: &Table<VmTable>,
    name: &str,
    workload: &Workload,
    vcpus: u32,
) -> Read<()> {
    let Workload::Program(program) = workload else { return Ok(()) };
    for role in &program.roles {
        if let Some(list) = role.vcpus.as_ref().filter(|list| list.highest() >= vcpus) {
            let what = format!("VM \"{name}\" has no vCPU {}, a role of it has", list.highest());
            return Err(table.error("workload", what, format!("name vCPUs below {vcpus}")));
        }
    }
    match (0..vcpus).find(|&vcpu| program.role_of(vcpu).is_none()) {
        None => Ok(()),
        Some(vcpu) => {
            let what = format!("no role speaks of vCPU {vcpu} of VM \"{name}\"");
            Err(table.error("workload", what, "add a role without vcpus: it is for the rest"))
        }
    }
}

/// Whether no earlier role has its vCPUs.
fn check_role(table: &Table<RoleTable>, earlier: &[Role]) -> Read<()> {
    let both = |role: &Role| match (&role.vcpus, &table.vcpus) {
        (None, None) => Some("the rest".to_owned()),
        (Some(theirs), Some(ours)) => Some(format!("vCPU {}", theirs.common(ours)?)),
        _ => None,
    };
    match earlier.iter().find_map(both) {
        None => Ok(()),
        Some(whose) => {
            let what = format!("two roles are for {whose}");
            Err(table.error("vcpus", what, "give each vCPU one role"))
        }
    }
}

/// Loops match, take time and leave locks as they found them; so does the whole.
fn check_goes_on<T>(table: &Table<T>, program: &Program, steps: &[ProgramStep]) -> Read<()> {
    let fault = |what: String, fix: &str| Err(table.error("steps", what, fix));
    let mut held: Vec<u32> = Vec::new();
    // Where each open loop began, the whole program first: the locks held and the steps' number.
    let mut open = vec![(Vec::new(), 0)];
    for (number, step) in steps.iter().chain([&ProgramStep::End]).enumerate() {
        let of = |lock: u32| &program.locks[lock as usize].name;
        match *step {
            ProgramStep::Take(lock) if held.contains(&lock) => {
                let what = format!("take {}: whoever comes here holds it already", of(lock));
                return fault(what, "release it before");
            }
            ProgramStep::Take(lock) => held.push(lock),
            ProgramStep::Release(lock) if !held.contains(&lock) => {
                let what = format!("release {}: whoever comes here does not hold it", of(lock));
                return fault(what, "take it before");
            }
            ProgramStep::Release(lock) => held.retain(|&other| other != lock),
            ProgramStep::Repeat(_) | ProgramStep::For(_) if open.len() > DEPTH_MAX => {
                let what = format!("repeat and for stand in each other more than {DEPTH_MAX} deep");
                return fault(what, "make it flatter");
            }
            ProgramStep::Repeat(_) | ProgramStep::For(_) => open.push((held.clone(), number + 1)),
            ProgramStep::End => {
                let Some((before, begin)) = open.pop() else {
                    return fault("an end too many".to_owned(), "remove it");
                };
                if before != held {
                    let lock = held.iter().find(|lock| !before.contains(lock));
                    let name = lock.or(before.first()).map_or("", |&lock| of(lock));
                    let what = format!("a round ends otherwise than it began: lock {name}");
                    return fault(what, "take and release it in the same round");
                }
                let round_ns: u64 = steps[begin..number].iter().map(|step| step.takes_ns()).sum();
                if round_ns == 0 {
                    let what = "a round takes no time and would go on forever".to_owned();
                    return fault(what, "add a step that takes time, such as compute 1 us");
                }
                if round_ns < ROUND_NS_MIN {
                    let what = format!("a round takes {round_ns} ns on average");
                    let fix = format!("have it take {ROUND_NS_MIN} ns at least, and count more");
                    return fault(what, &fix);
                }
            }
            _ if step.halts() && !held.is_empty() => {
                let what = format!("a vCPU halts while it holds the spinlock {}", of(held[0]));
                return fault(what, "release it before");
            }
            _ => {}
        }
    }
    if open.is_empty() { Ok(()) } else { fault("an end is missing".to_owned(), "add \"end\"") }
}

/// Whoever waits for work can hope for some, and nobody works for nothing.
fn check_queues(table: &Table<ProgramTable>, program: &Program) -> Read<()> {
    let steps = || program.roles.iter().flat_map(|role| &role.steps);
    for (number, name) in program.queues.iter().enumerate() {
        let number = number as u32;
        let waits = steps().any(|step| *step == ProgramStep::Wait(number));
        let fills = steps().any(|step| matches!(step, ProgramStep::Spawn(_, to) if *to == number));
        if waits && !fills {
            let what = format!("queue {name} is waited for and nobody puts work into it");
            return Err(table.error("steps", what, format!("add \"spawn 1 {name}\" somewhere")));
        }
        if fills && !waits {
            let what = format!("queue {name} gets work and nobody waits for it");
            return Err(table.error("steps", what, format!("add \"wait {name}\" somewhere")));
        }
    }
    Ok(())
}

fn check_name<T>(table: &Table<T>, at: usize, name: &str) -> Read<()> {
    let digit = name.starts_with(|first: char| first.is_ascii_digit());
    if is_plain_name(name) && !digit {
        return Ok(());
    }
    let fix = "begin with a letter and use A-Z a-z 0-9 . _ -, 63 at most";
    Err(table.error_at(at, format!("\"{name}\" is no name"), fix))
}

fn read_steps<T>(
    table: &Table<T>,
    lines: &[Spanned<String>],
    program: &mut Program,
) -> Read<Vec<ProgramStep>> {
    if lines.len() > STEPS_MAX {
        let what = format!("{} steps", lines.len());
        return Err(table.error("steps", what, format!("{STEPS_MAX} are the most")));
    }
    let mut steps = Vec::with_capacity(lines.len());
    for line in lines {
        let (at, line) = (line.span().start, line.get_ref());
        let words: Vec<&str> = line.split_whitespace().collect();
        let known = STEPS.iter().map(|(word, _)| *word);
        let verb = words.first().copied().unwrap_or("");
        let Some((_, example)) = STEPS.iter().find(|(word, _)| *word == verb) else {
            let what = format!("unknown step \"{line}\"");
            return Err(table.error_at(at, what, hint(verb, known)));
        };
        match read_step(verb, &words[1..], program) {
            Ok(Some(step)) => steps.push(step),
            Ok(None) => {
                let what = format!("\"{line}\" is no step");
                return Err(table.error_at(at, what, format!("write it as in \"{example}\"")));
            }
            Err((what, fix)) => return Err(table.error_at(at, what, fix)),
        }
        if let Some(name) = words.last().filter(|_| matches!(verb, "meet" | "join" | "wait")) {
            check_name(table, at, name)?;
        }
    }
    check_goes_on(table, program, &steps)?;
    Ok(steps)
}

/// The step; none when it is not written as it should be; or what is wrong, and the fix.
fn read_step(
    verb: &str,
    words: &[&str],
    program: &mut Program,
) -> Result<Option<ProgramStep>, (String, String)> {
    let lock = |name: &str| {
        let names = program.locks.iter().map(|lock| lock.name.as_str());
        let found = names.clone().position(|known| known == name);
        found.map(|number| number as u32).ok_or_else(|| {
            let fix = match program.locks.is_empty() {
                true => format!("add locks = {{ {name} = \"ticket\" }}"),
                false => hint(name, names),
            };
            (format!("unknown lock \"{name}\""), fix)
        })
    };
    Ok(match (verb, words) {
        ("compute", _) => time(words).map(ProgramStep::Compute),
        ("kernel", _) => time(words).map(ProgramStep::Kernel),
        ("take", [name]) => Some(ProgramStep::Take(lock(name)?)),
        ("release", [name]) => Some(ProgramStep::Release(lock(name)?)),
        ("meet", [name]) => Some(ProgramStep::Meet(number_of(&mut program.barriers, name))),
        ("join", [name]) => Some(ProgramStep::Join(number_of(&mut program.barriers, name))),
        ("sleep", _) => duration(words).map(ProgramStep::Sleep),
        ("timer", _) => duration(words).filter(|&ns| ns >= 10_000).map(ProgramStep::Timer),
        ("ipi", ["one"]) => Some(ProgramStep::Ipi(IpiTo::One)),
        ("ipi", ["all"]) => Some(ProgramStep::Ipi(IpiTo::All)),
        ("ipi", [vcpu]) => {
            let vcpu = vcpu.parse().ok().filter(|vcpu| *vcpu < Vm::VCPUS_MAX);
            vcpu.map(|vcpu| ProgramStep::Ipi(IpiTo::Vcpu(vcpu)))
        }
        ("io", _) => {
            let mut parts = words.split(|word| *word == "then");
            let (cpu, device) = (parts.next().and_then(time), parts.next());
            let device_ns = device.map_or(Some(0), duration).filter(|_| parts.next().is_none());
            cpu.zip(device_ns).map(|(cpu, device_ns)| ProgramStep::Io(cpu, device_ns))
        }
        ("wait", [name]) => Some(ProgramStep::Wait(number_of(&mut program.queues, name))),
        ("spawn", [times, name]) => times_of(times)
            .map(|times| ProgramStep::Spawn(times, number_of(&mut program.queues, name))),
        ("send", [kb, "KB"]) => kb
            .parse()
            .ok()
            .filter(|kb| (1..=RING_BYTES / 1000).contains(kb))
            .map(|kb: u32| ProgramStep::Send(1000 * kb)),
        ("forward", []) => Some(ProgramStep::Forward),
        ("transmit", []) => Some(ProgramStep::Transmit),
        ("count", []) => Some(ProgramStep::Count(1)),
        ("count", [times]) => times_of(times).map(ProgramStep::Count),
        ("pass", [lines, "lines"]) => times_of(lines).map(ProgramStep::Pass),
        ("repeat", [times]) => times_of(times).map(ProgramStep::Repeat),
        ("for", _) => duration(words).filter(|&ns| ns > 0).map(ProgramStep::For),
        ("end", []) => Some(ProgramStep::End),
        _ => None,
    })
}

fn number_of(names: &mut Vec<String>, name: &str) -> u32 {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    }) as u32
}

fn times_of(word: &str) -> Option<u32> {
    word.parse().ok().filter(|times| (1..=STEP_TIMES_MAX).contains(times))
}

/// `20 us`, `10 us to 30 us`, `about 20 us`.
fn time(words: &[&str]) -> Option<StepTime> {
    match words {
        ["about", rest @ ..] => duration(rest).map(StepTime::About),
        [_, _] => duration(words).map(StepTime::Exactly),
        [_, _, "to", rest @ ..] => {
            let (from, to) = (duration(&words[..2])?, duration(rest)?);
            (from <= to).then_some(StepTime::Between(from, to))
        }
        _ => None,
    }
}

/// `20 us`: a number, with or without decimals, and its unit.
fn duration(words: &[&str]) -> Option<u64> {
    let [number, unit] = words else { return None };
    let unit_ns = match *unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ns = number.parse::<f64>().ok().filter(|_| plain)? * unit_ns;
    (ns <= STEP_NS_MAX as f64).then_some(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        let at = |text: &str| time(&text.split(' ').collect::<Vec<_>>());
        assert_eq!(at("1.5 us"), Some(StepTime::Exactly(1_500)));
        assert_eq!(at("1 us to 2 ms"), Some(StepTime::Between(1_000, 2_000_000)));
        assert_eq!(at("about 3 s"), Some(StepTime::About(3_000_000_000)));
        assert_eq!(at("0 ns"), Some(StepTime::Exactly(0)));
        for bad in ["us", "1", "-1 us", "1 h", "2 us to 1 us", "inf s", "1e3 us", "86401 s", ""] {
            assert_eq!(at(bad), None, "{bad}");
        }
        assert_eq!(at("18446744073709551616 ns"), None);
    }
}
