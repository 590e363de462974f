// SPDX-License-Identifier: GPL-2.0-only
//! The one palette of all pictures: a VM's colour follows from its place, a scheduler's from its name.
//!
//! Ten colours that people with any kind of colour vision tell apart, on white and on black: six of Okabe and
//! Ito's, and four as far from these and from each other as can be. A reader of SVG in the dark is shown
//! others for ink and paper, and for those of the ten that are too dark.

use drover_scenario::claims::Standing;

/// Red, green, blue.
pub(super) type Color = (u8, u8, u8);

pub(super) const PAPER: Color = (255, 255, 255);
pub(super) const INK: Color = (40, 40, 40);
pub(super) const FAINT_INK: Color = (95, 95, 95);
pub(super) const GRID: Color = (225, 225, 225);

/// How many VMs, or kinds of VMs, a picture tells apart by full colours.
pub(crate) const TOLD_APART: usize = PALETTE.len();

const PALETTE: [Color; 10] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    WINE,
    BROWN,
    INDIGO,
    PALE_GREEN,
];
const WINE: Color = (136, 17, 85);
const BROWN: Color = (85, 68, 34);
const INDIGO: Color = (51, 34, 204);
const PALE_GREEN: Color = (153, 204, 136);
const GREY: Color = (140, 140, 140);

/// Schedulers by name: each has its colour in all pictures, whatever it is compared with.
const SCHEDULERS: [(&str, Color); 20] = [
    ("eevdf", GREY),
    ("drover", PALETTE[0]),
    ("credit", PALETTE[1]),
    ("esx35", PALETTE[2]),
    ("esx4", PALETTE[4]),
    ("cfs36", PALETTE[3]),
    ("scx_bpfland", PALETTE[4]),
    ("scx_flash", PALETTE[5]),
    ("priority", WINE),
    ("scx_lavd", INDIGO),
    ("scx_cosmos", PALETTE[1]),
    ("scx_flatcg", BROWN),
    ("scx_layered", PALETTE[2]),
    ("scx_p2dq", PALETTE[3]),
    ("scx_rusty", WINE),
    ("esx35-fine-locks", PALE_GREEN),
    ("cfs36-throttled-yield", PALETTE[4]),
    ("cfs36-cheaper-yield", BROWN),
    ("cfs36-autonuma", PALETTE[1]),
    ("cfs36-schednuma", PALETTE[2]),
];
/// Of a scheduler that is not known by name.
const OTHER: Color = PALETTE[5];

/// What is drawn otherwise in the dark.
const IN_THE_DARK: [(Color, Color); 7] = [
    (PAPER, (13, 17, 23)),
    (INK, (230, 230, 230)),
    (FAINT_INK, (165, 165, 165)),
    (GRID, (52, 56, 62)),
    (WINE, (187, 0, 136)),
    (BROWN, (136, 85, 68)),
    (INDIGO, (204, 255, 255)),
];

/// The colour of the VM, or kind of VMs, at this place; from the eleventh on it is pale.
pub(super) fn of_vm(place: usize) -> Color {
    let (red, green, blue) = PALETTE[place % PALETTE.len()];
    let pale = |part: u8| part.midpoint(255);
    if place < PALETTE.len() { (red, green, blue) } else { (pale(red), pale(green), pale(blue)) }
}

/// The colour of a scheduler.
pub(super) fn of_scheduler(name: &str) -> Color {
    let known = SCHEDULERS.iter().find(|(known, _)| *known == name);
    known.map_or(OTHER, |(_, color)| *color)
}

/// The colour of a claim, by how it stands.
pub(super) fn of_standing(standing: Standing) -> Color {
    match standing {
        Standing::Holds => PALETTE[0],
        Standing::Near => PALETTE[1],
        Standing::Not => PALETTE[5],
    }
}

/// What an SVG file says of the dark.
pub(super) fn style() -> String {
    let hex = |(red, green, blue): Color| format!("#{red:02X}{green:02X}{blue:02X}");
    let rule = |(light, dark): &(Color, Color)| {
        let (light, dark) = (hex(*light), hex(*dark));
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    };
    let rules: String = IN_THE_DARK.iter().map(rule).collect();
    format!("<style>@media(prefers-color-scheme:dark){{{rules}}}</style>")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Three = [f64; 3];

    fn times(matrix: [Three; 3], of: Three) -> Three {
        matrix.map(|row| row.iter().zip(of).map(|(factor, part)| factor * part).sum())
    }

    fn linear((red, green, blue): Color) -> Three {
        [red, green, blue].map(|part| match f64::from(part) / 255.0 {
            part if part <= 0.04045 => part / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        })
    }

    /// As eyes without cones for red, for green and for blue see it (Machado et al., 2009), and as others do.
    fn seen(color: Color) -> [Three; 4] {
        const EYES: [[Three; 3]; 3] = [
            [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
            [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
            [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
        ];
        let light = linear(color);
        let [red, green, blue] = EYES.map(|eye| times(eye, light).map(|it| it.clamp(0.0, 1.0)));
        [light, red, green, blue]
    }

    /// The distance between two colours as people judge it (Oklab), at worst.
    fn apart(one: Color, other: Color) -> f64 {
        let lab = |light: Three| {
            let cones =
                [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]];
            let lab =
                [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]];
            times(lab, times(cones, light).map(f64::cbrt))
        };
        let each = seen(one).into_iter().zip(seen(other)).map(|(one, other)| {
            let squares = lab(one).into_iter().zip(lab(other)).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        });
        each.fold(f64::INFINITY, f64::min)
    }

    fn contrast(one: Color, other: Color) -> f64 {
        let light = |color| times([[0.2126, 0.7152, 0.0722]; 3], linear(color))[0] + 0.05;
        (light(one) / light(other)).max(light(other) / light(one))
    }

    fn dark(color: Color) -> Color {
        IN_THE_DARK.iter().find(|(light, _)| *light == color).map_or(color, |(_, dark)| *dark)
    }

    fn assert_apart(colors: &[Color], paper: Color) {
        for (place, color) in colors.iter().enumerate() {
            assert!(contrast(*color, paper) > 1.8, "{color:?} on {paper:?}");
            for other in &colors[..place] {
                let apart = apart(*color, *other);
                assert!(apart > 0.06, "{color:?} and {other:?}: {apart:.3}");
            }
        }
    }

    #[test]
    fn ten_vms_are_told_apart_by_any_eyes_in_light_and_dark() {
        assert_apart(&PALETTE, PAPER);
        assert_apart(&PALETTE.map(dark), dark(PAPER));
        assert!(apart(PALETTE[0], (0, 120, 170)) < 0.03, "it can fail");
        assert_ne!(of_vm(3), of_vm(3 + TOLD_APART));
    }

    #[test]
    fn a_scheduler_has_its_colour_wherever_it_stands() {
        assert_eq!(of_scheduler("eevdf"), GREY);
        let compared: [&[&str]; 7] = [
            &["eevdf", "drover", "scx_bpfland", "scx_flash", "scx_lavd", "priority"],
            &[
                "eevdf",
                "drover",
                "scx_bpfland",
                "scx_flash",
                "scx_lavd",
                "scx_cosmos",
                "scx_layered",
                "scx_p2dq",
                "scx_rusty",
                "scx_flatcg",
            ],
            &["cfs36", "cfs36-cheaper-yield", "cfs36-throttled-yield", "drover"],
            &["cfs36-autonuma", "cfs36-schednuma"],
            &["cfs36-autonuma", "cfs36-autonuma-slowly"],
            &["esx35", "esx35-fine-locks", "esx4", "drover"],
            &["credit", "drover", "eevdf", "esx35"],
        ];
        for names in compared {
            let colors: Vec<Color> = names.iter().map(|name| of_scheduler(name)).collect();
            for (place, color) in colors.iter().enumerate() {
                assert!(!colors[..place].contains(color), "{names:?}");
            }
        }
    }

    #[test]
    fn ink_is_read_in_the_dark_too() {
        for ink in [INK, FAINT_INK] {
            assert!(contrast(ink, PAPER) > 4.5 && contrast(dark(ink), dark(PAPER)) > 4.5);
        }
        assert!(style().contains("[fill=\"#FFFFFF\"]{fill:#0D1117}"), "{}", style());
    }
}
