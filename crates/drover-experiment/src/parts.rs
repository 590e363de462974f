// SPDX-License-Identifier: GPL-2.0-only
//! An experiment made in several virtual hosts at the same time (plan.rs says which runs in which).

use crate::event::Event;
use crate::plan::Planned;
use anyhow::Result;
use drover_scenario::results::Run;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs that were made, and what befell the hosts they were made in.
#[derive(Debug)]
pub(crate) struct Finished {
    pub runs: Vec<Run>,
    pub troubles: Vec<String>,
    pub kernel: Option<String>,
}

/// A word of who makes a part of the runs.
enum Word {
    Told(Event),
    Made(usize, Result<Finished>),
}

/// Makes the part of that number.
pub(crate) type Make<'a> = dyn Fn(usize, &mut dyn FnMut(Event)) -> Result<Finished> + Sync + 'a;

/// Makes all parts, as many at once as this machine has CPUs.
pub(crate) fn make_at_once(
    parts: usize,
    make: &Make,
    on_event: &mut dyn FnMut(Event),
) -> Vec<Result<Finished>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = |words: mpsc::Sender<Word>| {
        let say = |word| words.send(word).expect("it listens until all have ended");
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= parts {
                break;
            }
            let made = make(number, &mut |event| say(Word::Told(event)));
            say(Word::Made(number, made));
        }
    };
    let mut made: Vec<(usize, Result<Finished>)> = Vec::new();
    thread::scope(|scope| {
        let (words, heard) = mpsc::channel();
        for _ in 0..parts.min(cpus) {
            let words = words.clone();
            scope.spawn(|| work(words));
        }
        drop(words);
        for word in heard {
            match word {
                Word::Told(event) => on_event(event),
                Word::Made(number, finished) => made.push((number, finished)),
            }
        }
    });
    made.sort_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, finished)| finished).collect()
}

/// The parts as one, in the order of the plan. What a part that failed has made is not known; it is an error
/// when no other was made either, else a trouble.
pub(crate) fn put_together(
    parts: &[Vec<Planned>],
    made: Vec<Result<Finished>>,
) -> Result<Finished> {
    let mut runs: Vec<(usize, Run)> = Vec::new();
    let (mut troubles, mut kernel, mut errors) = (Vec::new(), None, Vec::new());
    for (part, made) in parts.iter().zip(made) {
        match made {
            Ok(finished) => {
                runs.extend(part.iter().map(|run| run.index).zip(finished.runs));
                troubles.extend(finished.troubles);
                kernel = kernel.or(finished.kernel);
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.len() == parts.len() {
        return Err(errors.swap_remove(0));
    }
    troubles.extend(errors.iter().map(|error| format!("{error:#}")));
    runs.sort_by_key(|(index, _)| *index);
    Ok(Finished { runs: runs.into_iter().map(|(_, run)| run).collect(), troubles, kernel })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::without_figures;
    use crate::plan::parts;
    use drover_scenario::{Clock, Scenario};

    const TEXT: &str = "name = \"s\"\n[host]\ncores = 4\n[[vm]]\nname = \"a\"\nvcpus = 1\n\
                        workload = { kind = \"cpu\" }\n";

    /// Two parts of a scenario of three cases, made by nobody.
    fn in_two_parts(fails: &[usize]) -> Result<Finished> {
        let text =
            format!("{TEXT}[[case]]\nname = \"x\"\n[[case]]\nname = \"y\"\n[[case]]\nname = \"z\"");
        let mut scenario = Scenario::parse(&text, "s.toml").unwrap();
        scenario.clock = Clock::Exact;
        let parts = parts(&scenario);
        let make = |number: usize, on_event: &mut dyn FnMut(Event)| {
            on_event(Event::Notice(format!("part {number}")));
            anyhow::ensure!(!fails.contains(&number), "part {number} failed");
            let run = |run: &Planned| {
                let started = run.started(&scenario, parts[0].len() + parts[1].len());
                Run {
                    scheduler: started.scheduler,
                    ..without_figures(&scenario.cases[run.case], 4, None)
                }
            };
            let runs = parts[number].iter().map(run).collect();
            Ok(Finished { runs, troubles: vec![format!("of {number}")], kernel: None })
        };
        let mut notices = 0;
        let made = make_at_once(parts.len(), &make, &mut |_| notices += 1);
        assert_eq!(notices, 2);
        put_together(&parts, made)
    }

    #[test]
    fn parts_are_put_together_in_the_order_of_the_plan() {
        let finished = in_two_parts(&[]).unwrap();
        let told = |run: &Run| format!("{} {}", run.case, run.scheduler);
        assert_eq!(
            finished.runs.iter().map(told).collect::<Vec<_>>(),
            ["x eevdf", "y eevdf", "z eevdf", "x drover", "y drover", "z drover"]
        );
        assert_eq!(finished.troubles, ["of 0", "of 1"]);
    }

    #[test]
    fn of_two_parts_one_that_fails_is_a_trouble() {
        let finished = in_two_parts(&[0]).unwrap();
        assert_eq!(finished.runs.len(), 2);
        assert_eq!(finished.troubles, ["of 1", "part 0 failed"]);
        assert_eq!(in_two_parts(&[0, 1]).unwrap_err().to_string(), "part 0 failed");
    }
}
