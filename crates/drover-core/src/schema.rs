// SPDX-License-Identifier: GPL-2.0-only
//! Schemas of values that are written as people write them, in a text.

use crate::asked::{Limit, MaxPerNode};
use crate::cpu_list::CpuList;
use crate::shares::Shares;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! text {
    ($kind:ty, $name:literal, $meaning:literal, $pattern:literal) => {
        impl JsonSchema for $kind {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $meaning, "pattern": $pattern })
            }
        }
    };
}

text!(
    Shares,
    "Shares",
    "1 to 1000000, or so many for each vCPU, or low, normal, high: 500, 1000, 2000 for each vCPU.",
    "^(low|normal|high|[0-9]+(/vcpu)?)$"
);
text!(Limit, "Limit", "The most CPU, % of one pCPU, or none.", "^(none|[0-9]+(\\.[0-9]+)?%)$");
text!(MaxPerNode, "MaxPerNode", "The most vCPUs on a NUMA node, or none.", "^(none|[1-9][0-9]*)$");
text!(CpuList, "CpuList", "pCPUs, such as 0-1,3.", "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$");
