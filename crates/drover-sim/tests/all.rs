// SPDX-License-Identifier: GPL-2.0-only
//! All tests of the simulator from outside, in one program: in five, five copies of its generic code were compiled, and
//! cargo ran one program after the other.

mod against;
mod from_recording;
mod profiles;
mod programs;
mod rig;
mod scenarios;
mod speed_model;
