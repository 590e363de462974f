// SPDX-License-Identifier: GPL-2.0-only
//! What happened: always as one hash, and as a record of who ran when if somebody wants it.

use crate::machine::TaskId;

/// A task ran on a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The pCPU.
    pub cpu: u32,
    /// The task.
    pub task: TaskId,
    /// From then.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// A task was ready and did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The task.
    pub task: TaskId,
    /// From then.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

/// Who ran when, and who waited for it.
#[derive(Debug, Default)]
pub struct Record {
    /// What has ended.
    pub spans: Vec<Span>,
    /// Waits that are over.
    pub waits: Vec<Wait>,
    /// What has begun on each pCPU: the task and when.
    open: Vec<Option<(TaskId, u64)>>,
}

/// The trace of a run.
#[derive(Debug, Default)]
pub struct Trace {
    /// Equal for two runs exactly when the same happened at the same moments.
    pub hash: u64,
    /// Who ran when, if that is recorded.
    pub record: Option<Record>,
}

impl Trace {
    /// A trace that also records who ran when.
    pub fn recording() -> Self {
        Self { hash: 0, record: Some(Record::default()) }
    }

    /// A task begins to run, which has been ready since then.
    pub fn begin(&mut self, cpu: u32, task: TaskId, ready_since_ns: u64, now_ns: u64) {
        self.waited(task, ready_since_ns, now_ns);
        let Some(record) = &mut self.record else { return };
        if record.open.len() <= cpu as usize {
            record.open.resize(cpu as usize + 1, None);
        }
        record.open[cpu as usize] = Some((task, now_ns));
    }

    /// A task was ready all that time.
    pub fn waited(&mut self, task: TaskId, from_ns: u64, to_ns: u64) {
        if let Some(record) = self.record.as_mut().filter(|_| from_ns < to_ns) {
            record.waits.push(Wait { task, from_ns, to_ns });
        }
    }

    /// It is over: so are all spans.
    pub fn finish(&mut self, now_ns: u64) {
        let pcpus = self.record.as_ref().map_or(0, |record| record.open.len());
        (0..pcpus as u32).for_each(|cpu| self.end(cpu, now_ns));
    }

    /// Whoever runs there stops.
    pub fn end(&mut self, cpu: u32, now_ns: u64) {
        let Some(record) = &mut self.record else { return };
        if let Some((task, from_ns)) = record.open.get_mut(cpu as usize).and_then(Option::take) {
            record.spans.push(Span { cpu, task, from_ns, to_ns: now_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_recorded_only_on_request() {
        let mut trace = Trace::default();
        trace.begin(3, 7, 5, 10);
        trace.end(3, 20);
        assert!(trace.record.is_none());
        let mut trace = Trace::recording();
        trace.end(3, 5);
        trace.begin(3, 7, 5, 10);
        trace.end(3, 20);
        trace.begin(0, 8, 15, 15);
        trace.finish(25);
        let record = trace.record.unwrap();
        let last = Span { cpu: 0, task: 8, from_ns: 15, to_ns: 25 };
        assert_eq!(record.spans, [Span { cpu: 3, task: 7, from_ns: 10, to_ns: 20 }, last]);
        assert_eq!(record.waits, [Wait { task: 7, from_ns: 5, to_ns: 10 }], "8 did not wait");
    }
}
