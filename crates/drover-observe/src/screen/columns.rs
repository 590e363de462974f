// SPDX-License-Identifier: GPL-2.0-only
//! The columns there are, and which of them are shown on a screen of some width.

use super::view::{Sort, View};

/// Which figures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Columns {
    /// Where the time of vCPUs went.
    #[default]
    Cpu,
    /// What Drover knows of VMs.
    Drover,
    /// How late threads on the way of I/O ran, of VMs.
    Io,
}

/// What stands in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Vm,
    Pid,
    Vcpus,
    Used,
    Run,
    Ready,
    Costop,
    Wait,
    Shares,
    Owed,
    Hazard,
    Limited,
    Yields,
    InVain,
    Home,
    Local,
    Profile,
    Block,
    Network,
    GuestWakes,
    GuestMean,
    GuestP99,
    GuestLost,
    DeviceWakes,
    DeviceMean,
    DeviceP99,
    DeviceLost,
}

impl Field {
    /// Those that may be left out, and what a list of them calls each.
    pub const CHOSEN: [(Field, &'static str); 26] = [
        (Field::Pid, "PID"),
        (Field::Vcpus, "VCPUS"),
        (Field::Used, "%USED"),
        (Field::Run, "%RUN"),
        (Field::Ready, "%RDY"),
        (Field::Costop, "%CSTP"),
        (Field::Wait, "%WAIT"),
        (Field::Shares, "SHARES"),
        (Field::Owed, "%OWED"),
        (Field::Hazard, "%HZD"),
        (Field::Limited, "%MLMTD"),
        (Field::Yields, "YLD/s"),
        (Field::InVain, "%VAIN"),
        (Field::Home, "HOME"),
        (Field::Local, "N%L"),
        (Field::Profile, "PROFILE"),
        (Field::Block, "DISK MB/s"),
        (Field::Network, "NET MB/s"),
        (Field::GuestWakes, "to guest: WAKES/s"),
        (Field::GuestMean, "to guest: MEAN us"),
        (Field::GuestP99, "to guest: P99 us"),
        (Field::GuestLost, "to guest: ms/MB"),
        (Field::DeviceWakes, "to device: WAKES/s"),
        (Field::DeviceMean, "to device: MEAN us"),
        (Field::DeviceP99, "to device: P99 us"),
        (Field::DeviceLost, "to device: ms/MB"),
    ];

    /// Its head, and its width.
    pub fn head(self) -> (&'static str, u16) {
        match self {
            Field::Vm => ("VM", 0),
            Field::Pid => ("PID", 8),
            Field::Vcpus => ("VCPUS", 5),
            Field::Used => ("%USED", 7),
            Field::Run => ("%RUN", 7),
            Field::Ready => ("%RDY", 7),
            Field::Costop => ("%CSTP", 7),
            Field::Wait => ("%WAIT", 7),
            Field::Shares => ("SHARES", 7),
            Field::Owed => ("%OWED", 7),
            Field::Hazard => ("%HZD", 6),
            Field::Limited => ("%MLMTD", 7),
            Field::Yields => ("YLD/s", 7),
            Field::InVain => ("%VAIN", 6),
            Field::Home => ("HOME", 7),
            Field::Local => ("N%L", 5),
            Field::Profile => ("PROFILE", 7),
            Field::Block => ("DISK", 7),
            Field::Network => ("NET", 7),
            Field::GuestWakes | Field::DeviceWakes => ("WAKES/s", 7),
            Field::GuestMean | Field::DeviceMean => ("MEAN us", 7),
            Field::GuestP99 | Field::DeviceP99 => ("P99 us", 7),
            Field::GuestLost | Field::DeviceLost => ("ms/MB", 7),
        }
    }

    /// The order in which it stands first.
    pub fn sort(self) -> Option<Sort> {
        match self {
            Field::Vm => Some(Sort::Name),
            Field::Used => Some(Sort::Used),
            Field::Run => Some(Sort::Run),
            Field::Ready => Some(Sort::Ready),
            Field::Costop => Some(Sort::Costop),
            Field::Wait => Some(Sort::Wait),
            Field::Owed => Some(Sort::Owed),
            Field::Hazard => Some(Sort::Hazard),
            Field::Block | Field::Network => Some(Sort::Moved),
            Field::GuestMean => Some(Sort::ToGuest),
            Field::DeviceMean => Some(Sort::ToDevice),
            _ => None,
        }
    }
}

/// The least that names of VMs have, and what they have before columns are added that are another key's.
const NAMES: u16 = 16;
const WIDE_NAMES: u16 = 30;
/// The most: beyond that figures are too far from the name they are of.
const NAMES_MAX: u16 = 48;

/// Columns for which there is room: what matters most comes first here.
fn wanted(columns: Columns) -> &'static [(Field, u16)] {
    use Field::*;
    match columns {
        Columns::Cpu => &[
            (Ready, NAMES),
            (Run, NAMES),
            (Wait, NAMES),
            (Used, NAMES),
            (Costop, NAMES),
            (Pid, NAMES),
            (Vcpus, NAMES),
            (Limited, WIDE_NAMES),
            (Owed, WIDE_NAMES),
            (Hazard, WIDE_NAMES),
            (Shares, WIDE_NAMES),
            (Home, WIDE_NAMES),
            (Local, WIDE_NAMES),
            (Profile, WIDE_NAMES),
            (Yields, WIDE_NAMES),
            (InVain, WIDE_NAMES),
        ],
        Columns::Drover => &[
            (Owed, NAMES),
            (Used, NAMES),
            (Ready, NAMES),
            (Hazard, NAMES),
            (Shares, NAMES),
            (Home, NAMES),
            (Profile, NAMES),
            (Local, NAMES),
            (Limited, NAMES),
            (Yields, NAMES),
            (InVain, NAMES),
            (Pid, NAMES),
        ],
        Columns::Io => &[
            (GuestMean, NAMES),
            (DeviceMean, NAMES),
            (Network, NAMES),
            (Block, NAMES),
            (GuestLost, NAMES),
            (DeviceLost, NAMES),
            (GuestP99, NAMES),
            (DeviceP99, NAMES),
            (GuestWakes, NAMES),
            (DeviceWakes, NAMES),
            (Pid, NAMES),
        ],
    }
}

/// The columns that are shown on a screen of that width, from left to right.
pub fn shown(view: &View, width: u16) -> Vec<Field> {
    let mut fields = vec![Field::Vm];
    let mut taken = 0;
    for &(field, names) in wanted(view.columns) {
        let more = field.head().1 + 1;
        if !view.hidden.contains(&field) && taken + more + names <= width {
            taken += more;
            fields.push(field);
        }
    }
    fields.sort_unstable();
    fields
}

/// What is said over columns of I/O, the longest first; none: nothing is said over that column.
fn over(field: Field) -> Option<[&'static str; 3]> {
    use Field::*;
    match field {
        Block | Network => Some(["MOVED MB/s", "MB/s", "MB/s"]),
        GuestWakes | GuestMean | GuestP99 | GuestLost => {
            Some(["DELAYS TO GUEST", "TO GUEST", "GUEST"])
        }
        DeviceWakes | DeviceMean | DeviceP99 | DeviceLost => {
            Some(["DELAYS TO DEVICE", "TO DEVICE", "DEVICE"])
        }
        _ => None,
    }
}

/// What stands over these columns, the last of which are of I/O; none: there are none of these.
pub fn line_over(shown: &[Field]) -> Option<String> {
    let all =
        shown.iter().filter_map(|&field| Some((over(field)?, usize::from(field.head().1) + 1)));
    let mut groups: Vec<([&str; 3], usize)> = Vec::new();
    for (texts, width) in all {
        match groups.last_mut().filter(|(last, _)| *last == texts) {
            Some((_, together)) => *together += width,
            None => groups.push((texts, width)),
        }
    }
    let one = |(texts, width): &([&str; 3], usize)| {
        let text = texts.iter().find(|text| text.len() < *width).unwrap_or(&texts[2]);
        format!("{text:>width$}")
    };
    let line: String = groups.iter().map(one).collect();
    (!line.is_empty()).then_some(line)
}

/// How wide a table of these columns is at most: names get no more than they need.
pub fn width(shown: &[Field]) -> u16 {
    NAMES_MAX + shown[1..].iter().map(|field| field.head().1 + 1).sum::<u16>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_most_is_shown_where_there_is_little_room_and_what_is_hidden_nowhere() {
        let mut view = View::default();
        assert_eq!(shown(&view, 40), [Field::Vm, Field::Run, Field::Ready, Field::Wait]);
        assert_eq!(shown(&view, 1), [Field::Vm]);
        assert_eq!(shown(&view, 250).len(), 17);
        view.hidden.insert(Field::Run);
        assert!(!shown(&view, 250).contains(&Field::Run));
        for columns in [Columns::Cpu, Columns::Drover, Columns::Io] {
            let mut view = View::default();
            view.columns = columns;
            let width: u16 = shown(&view, 80).iter().map(|field| field.head().1 + 1).sum();
            assert!(width + NAMES <= 81, "{columns:?}: {width}");
        }
    }

    #[test]
    fn every_column_of_every_key_can_be_left_out() {
        for columns in [Columns::Cpu, Columns::Drover, Columns::Io] {
            for (field, _) in wanted(columns) {
                assert!(Field::CHOSEN.iter().any(|(chosen, _)| chosen == field), "{field:?}");
            }
        }
    }
}
