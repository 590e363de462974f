// SPDX-License-Identifier: GPL-2.0-only
//! What is to happen when during the measured time of a run.

use drover_scenario::Vm;

/// Something to do. In this order where several fall on one moment: what is read there is what was
/// before the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Note every VM's CPU time.
    Sample,
    /// Begin to record who runs where.
    BeginRecord,
    /// The record ends.
    EndRecord,
    /// Kill the VM with this index.
    Kill(usize),
    /// Let the VM with this index go.
    Go(usize),
    /// The measured time is over; whether the last reading is also the last sample.
    End { is_sample: bool },
}

/// All there is to do in a measured time of `duration_s`, with the moment in s, in order; the last is
/// [`Action::End`].
pub(crate) fn moments(
    vms: &[Vm],
    duration_s: f64,
    sample_ms: Option<u32>,
    record_s: Option<(f64, f64)>,
) -> Vec<(f64, Action)> {
    let (samples, is_sample) = samples(duration_s, sample_ms);
    let mut moments = vec![(duration_s, Action::End { is_sample })];
    moments.extend(samples.into_iter().map(|at_s| (at_s, Action::Sample)));
    if let Some((from_s, to_s)) = record_s {
        moments.extend([(from_s, Action::BeginRecord), (to_s, Action::EndRecord)]);
    }
    for (index, vm) in vms.iter().enumerate() {
        let start = vm.start_s.map(|start_s| (start_s, Action::Go(index)));
        let stop = vm.stop_s.map(|stop_s| (stop_s, Action::Kill(index)));
        moments.extend(start.into_iter().chain(stop).filter(|(at_s, _)| *at_s < duration_s));
    }
    moments.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    moments
}

/// The moments of samples, s, but for those of the first and the last reading; and whether there is
/// one at the end.
fn samples(duration_s: f64, sample_ms: Option<u32>) -> (Vec<f64>, bool) {
    let Some(sample_ms) = sample_ms else { return (Vec::new(), false) };
    let interval_s = f64::from(sample_ms) / 1000.0;
    // A hair, because durations such as 0.3 s are no sums of binary fractions.
    let hair_s = interval_s / 1e6;
    let count = ((duration_s + hair_s) / interval_s).floor() as u64;
    let mut samples: Vec<f64> = (1..=count).map(|sample| sample as f64 * interval_s).collect();
    let is_sample = samples.last().is_some_and(|last_s| *last_s + hair_s >= duration_s);
    if is_sample {
        samples.pop();
    }
    (samples, is_sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_scenario::Scenario;

    fn vms() -> Vec<Vm> {
        let text = "name = \"s\"\n[host]\n[[vm]]\nname = \"a\"\nvcpus = 1\nstop_s = 0.2\n\
                    workload = { kind = \"cpu\" }\n[[vm]]\nname = \"b\"\nvcpus = 1\nstart_s = 0.2\n\
                    workload = { kind = \"cpu\" }\n";
        Scenario::parse(text, "s.toml").unwrap().cases.remove(0).vms
    }

    #[test]
    fn everything_has_its_moment() {
        let order: Vec<Action> = moments(&vms(), 0.3, Some(100), Some((0.1, 0.3)))
            .into_iter()
            .map(|(_, action)| action)
            .collect();
        use Action::{BeginRecord, End, EndRecord, Go, Kill, Sample};
        let end = End { is_sample: true };
        assert_eq!(order, [Sample, BeginRecord, Sample, Kill(0), Go(1), EndRecord, end]);
    }

    #[test]
    fn samples_are_whole_intervals() {
        assert_eq!(samples(1.0, Some(400)), (vec![0.4, 0.8], false));
        assert_eq!(samples(1.0, Some(500)), (vec![0.5], true));
        assert_eq!(samples(0.1, Some(500)), (vec![], false));
    }

    #[test]
    fn moments_beyond_the_end_do_not_come() {
        assert_eq!(moments(&vms(), 0.1, None, None), [(0.1, Action::End { is_sample: false })]);
    }
}
