// SPDX-License-Identifier: GPL-2.0-only
//! Tables of a scenario that stand for several: `for`, `each`, and lists of cases and VMs.
//!
//! They are written out one by one before anything is read of them, each value with the place where it
//! stands in the file. What reads a table knows nothing of it.

use drover_core::cpu_list::CpuList;
use drover_core::toml_file::{Keys, Read, Table};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The most tables that one may stand for.
const TABLES_MAX: usize = 1_000;
/// Keys of an expectation or a comparison that take a list: one table for each of it.
pub(super) const LISTS: &[&str] = &["case", "vm"];

/// The tables that those of a `[[key]]` stand for, in the order of the file. Of keys in `lists` each value of a
/// list makes a table.
pub(super) fn expanded<'a, U: Keys>(
    table: &Table<'a, impl Sized>,
    key: &str,
    lists: &[&str],
) -> Read<Vec<Table<'a, U>>> {
    let mut tables = Vec::new();
    for item in table.items::<U>(key)? {
        let mut expanded = each_value(item)?;
        expanded = flat(expanded, each_row)?;
        for list in lists {
            expanded = flat(expanded, |table| each_listed(table, list))?;
        }
        tables.extend(expanded);
    }
    tables.iter().map(Table::read).collect()
}

type Tables<'a> = Vec<Table<'a, ()>>;

/// What `of` makes of each table, in their order.
fn flat<'a>(
    tables: Tables<'a>,
    of: impl Fn(Table<'a, ()>) -> Read<Tables<'a>>,
) -> Read<Tables<'a>> {
    Ok(tables.into_iter().map(of).collect::<Read<Vec<_>>>()?.into_iter().flatten().collect())
}

/// A name of `for`, and what is put in its place.
struct Variable<'a> {
    name: String,
    at: usize,
    values: Vec<DeString<'a>>,
}

/// `for = { n = [1, 2] }`: a table for each value, of several names for each combination, the last name
/// changing first. `{n}` in texts, and in names of tables, is the value.
fn each_value(mut table: Table<()>) -> Read<Tables> {
    let Some(given) = table.raw.remove("for") else { return Ok(vec![table]) };
    let DeValue::Table(names) = given.get_ref() else {
        return Err(table.wrong_value("for", &given, "give lists, such as for.n = [1, 2]"));
    };
    let variables = names.iter().map(|(name, values)| variable(&table, name, values));
    let mut variables = variables.collect::<Read<Vec<_>>>()?;
    variables.sort_by_key(|variable| variable.at);
    let count = variables.iter().map(|it| it.values.len()).fold(1, usize::saturating_mul);
    if count > TABLES_MAX {
        let what = format!("{} stands for {count} tables", table.title);
        return Err(table.error_at(given.span().start, what, format!("{TABLES_MAX} at most")));
    }
    let mut tables = vec![table];
    for Variable { name, at, values } in &variables {
        let mark = format!("{{{name}}}");
        if let Some(table) = tables.iter().find(|table| !has(&table.raw, &mark)) {
            let what = format!("for gives {name}, and {mark} stands nowhere in {}", table.title);
            return Err(table.error_at(*at, what, format!("write {mark} in a text, or remove it")));
        }
        tables = flat(tables, |table| {
            let put = |value: &DeString| Ok(with(&table, put(&table, &table.raw, &mark, value)?));
            values.iter().map(put).collect()
        })?;
    }
    Ok(tables)
}

fn variable<'a>(
    table: &Table<'a, ()>,
    name: &Spanned<DeString<'a>>,
    given: &Spanned<DeValue<'a>>,
) -> Read<Variable<'a>> {
    let fix = "give texts or whole numbers in a list, or numbers such as \"0-3,8\"";
    let wrong = |value| Err(table.wrong_value(&format!("for.{}", name.get_ref()), value, fix));
    let mut values: Vec<DeString> = Vec::new();
    match given.get_ref() {
        DeValue::String(numbers) => match numbers.parse::<CpuList>() {
            Ok(numbers) => values.extend(numbers.cpus().iter().map(|it| it.to_string().into())),
            Err(_) => return wrong(given),
        },
        DeValue::Array(items) => {
            for item in items.iter() {
                values.push(match item.get_ref() {
                    DeValue::String(text) => text.clone(),
                    DeValue::Integer(number) => number.to_string().into(),
                    _ => return wrong(item),
                });
                none_twice(table, &values, item)?;
            }
        }
        _ => return wrong(given),
    }
    if values.is_empty() {
        return wrong(given);
    }
    Ok(Variable { name: name.get_ref().to_string(), at: name.span().start, values })
}

/// Refuses the last of `values`, written as `item`, if another is the same.
fn none_twice(table: &Table<()>, values: &[DeString], item: &Spanned<DeValue>) -> Read<()> {
    match values.split_last() {
        Some((last, others)) if others.contains(last) => {
            let what = format!("\"{last}\" is listed twice in {}", table.title);
            Err(table.error_at(item.span().start, what, "remove one"))
        }
        _ => Ok(()),
    }
}

/// Whether the mark stands anywhere in these values.
fn has(raw: &DeTable, mark: &str) -> bool {
    let within = |value: &Spanned<DeValue>| is_in(value.get_ref(), mark);
    raw.iter().any(|(key, value)| key.get_ref().contains(mark) || within(value))
}

fn is_in(value: &DeValue, mark: &str) -> bool {
    match value {
        DeValue::String(text) => text.contains(mark),
        DeValue::Array(items) => items.iter().any(|item| is_in(item.get_ref(), mark)),
        DeValue::Table(below) => has(below, mark),
        _ => false,
    }
}

/// The same values with `text` for the mark, everywhere.
fn put<'a>(table: &Table<()>, raw: &DeTable<'a>, mark: &str, text: &str) -> Read<DeTable<'a>> {
    let mut all = DeTable::new();
    for (key, value) in raw {
        let name: DeString = key.get_ref().replace(mark, text).into();
        let value = put_in(table, value, mark, text)?;
        if all.insert(Spanned::new(key.span(), name.clone()), value).is_some() {
            let what = format!("\"{name}\" is there twice, with {text} for {mark}");
            return Err(table.error_at(key.span().start, what, "remove one"));
        }
    }
    Ok(all)
}

fn put_in<'a>(
    table: &Table<()>,
    value: &Spanned<DeValue<'a>>,
    mark: &str,
    text: &str,
) -> Read<Spanned<DeValue<'a>>> {
    let put = match value.get_ref() {
        DeValue::String(given) => DeValue::String(given.replace(mark, text).into()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| put_in(table, item, mark, text));
            DeValue::Array(items.collect::<Read<_>>()?)
        }
        DeValue::Table(below) => DeValue::Table(put(table, below, mark, text)?),
        other => other.clone(),
    };
    Ok(Spanned::new(value.span(), put))
}

/// `each = [{ ... }, { ... }]`: a table for each row, with the row's keys beside its own.
fn each_row(mut table: Table<()>) -> Read<Tables> {
    let Some(given) = table.raw.remove("each") else { return Ok(vec![table]) };
    let fix = "give rows of keys, such as each = [{ name = \"a\" }, { name = \"b\" }]";
    let rows = match given.get_ref() {
        DeValue::Array(rows) if !rows.is_empty() => rows,
        _ => return Err(table.wrong_value("each", &given, fix)),
    };
    let mut tables = Vec::new();
    for row in rows.iter() {
        let DeValue::Table(keys) = row.get_ref() else {
            return Err(table.wrong_value("each", row, fix));
        };
        let mut raw = table.raw.clone();
        beside(&table, &mut raw, keys)?;
        tables.push(table.of(&table.title, row.span().start, raw, ()));
    }
    Ok(tables)
}

/// Puts the keys of a row beside those that are there, in tables below as well.
fn beside<'a>(table: &Table<()>, raw: &mut DeTable<'a>, row: &DeTable<'a>) -> Read<()> {
    for (key, value) in row {
        let Some(there) = raw.get_mut(key.get_ref().as_ref()) else {
            raw.insert(key.clone(), value.clone());
            continue;
        };
        match (there.get_mut(), value.get_ref()) {
            (DeValue::Table(there), DeValue::Table(below)) => beside(table, there, below)?,
            _ => {
                let what =
                    format!("{} has {key} for all and in a row", table.title, key = key.get_ref());
                return Err(table.error_at(key.span().start, what, "remove one of the two"));
            }
        }
    }
    Ok(())
}

/// `case = ["a", "b"]`: a table for each.
fn each_listed<'a>(table: Table<'a, ()>, key: &str) -> Read<Tables<'a>> {
    let Some((name, given)) = table.raw.get_key_value(key) else { return Ok(vec![table]) };
    let DeValue::Array(items) = given.get_ref() else { return Ok(vec![table]) };
    if items.is_empty() {
        return Err(table.wrong_value(key, given, "name one at least, or remove the key"));
    }
    let (mut tables, mut values) = (Vec::new(), Vec::new());
    for item in items.iter() {
        if let DeValue::String(text) = item.get_ref() {
            values.push(text.clone());
            none_twice(&table, &values, item)?;
        }
        let mut raw = table.raw.clone();
        raw.insert(name.clone(), item.clone());
        tables.push(with(&table, raw));
    }
    Ok(tables)
}

/// That table with these values.
fn with<'a>(table: &Table<'a, ()>, raw: DeTable<'a>) -> Table<'a, ()> {
    table.of(&table.title, table.at, raw, ())
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;
    use proptest::prelude::*;
    use std::fmt::Write;

    const HEAD: &str = "name = \"x\"\nhost = { cores = 4 }\n";

    fn parse(text: &str) -> Scenario {
        Scenario::parse(text, "x.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn vm(name: &str, vcpus: u32) -> String {
        format!("[[vm]]\nname = \"{name}\"\nvcpus = {vcpus}\nworkload = {{ kind = \"cpu\" }}\n")
    }

    fn quoted(names: &[String]) -> String {
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        format!("[{}]", names.join(", "))
    }

    #[test]
    fn vms_of_several_kinds_take_turns_as_if_written_so() {
        let rows = "[[vm]]\nfor.n = \"1-2,4\"\nworkload = { kind = \"cpu\" }\n\
                    each = [{ name = \"cpu{n}\", vcpus = 1 }, { name = \"io{n}\", vcpus = 2 }]\n";
        let one_by_one: String =
            [1, 2, 4].map(|n| vm(&format!("cpu{n}"), 1) + &vm(&format!("io{n}"), 2)).concat();
        assert_eq!(parse(&format!("{HEAD}{rows}")), parse(&format!("{HEAD}{one_by_one}")));
    }

    #[test]
    fn cases_are_made_of_each_combination_the_last_name_first() {
        let vms = [0, 1, 2].map(|n| vm(&format!("vm{n}"), 1)).concat();
        let cases = "[[case]]\nfor = { n = [1, 2], how = [\"on\", \"auto\"] }\nname = \"{n} {how}\"\n\
                     vm.\"vm[{n}-2]\".absent = true\nvm.vm0.consolidate = \"{how}\"\n";
        let mut one_by_one = String::new();
        for (n, absent) in [(1, "vm.vm1.absent = true\nvm.vm2"), (2, "vm.vm2")] {
            for how in ["on", "auto"] {
                write!(
                    one_by_one,
                    "[[case]]\nname = \"{n} {how}\"\n{absent}.absent = true\n\
                     vm.vm0.consolidate = \"{how}\"\n"
                )
                .unwrap();
            }
        }
        assert_eq!(
            parse(&format!("{HEAD}{vms}{cases}")),
            parse(&format!("{HEAD}{vms}{one_by_one}"))
        );
    }

    #[test]
    fn a_row_may_add_to_a_table_of_all() {
        let vms = vm("a", 1) + &vm("b", 1);
        let cases = "[[case]]\nvm.a.shares = 7\n\
                     each = [{ name = \"one\" }, { name = \"two\", vm.a.limit_pct = 50, vm.b.absent = true }]\n";
        let one_by_one = "[[case]]\nname = \"one\"\nvm.a.shares = 7\n\
                          [[case]]\nname = \"two\"\nvm.a = { shares = 7, limit_pct = 50 }\nvm.b.absent = true\n";
        assert_eq!(
            parse(&format!("{HEAD}{vms}{cases}")),
            parse(&format!("{HEAD}{vms}{one_by_one}"))
        );
    }

    #[test]
    fn braces_are_texts_where_nothing_is_for_them() {
        let text = format!(
            "{HEAD}[[vm]]\nname = \"a\"\nvcpus = 1\nvmm = \"qemu\"\n\
             workload = {{ kind = \"command\", run = \"echo {{n}}\" }}\n"
        );
        let workload = format!("{:?}", parse(&text).cases[0].vms[0].workload);
        assert!(workload.contains("echo {n}"), "{workload}");
    }

    proptest! {
        /// Lists, rows and values of `for` are what blocks of their own are, in the same order.
        #[test]
        fn lists_are_what_blocks_of_their_own_are(
            cases in prop::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_shuffle(),
            vms in prop::sample::subsequence(vec![0, 1, 2], 1..=3).prop_shuffle(),
            rows in prop::collection::vec((0u32..100, prop::option::of(100u32..200)), 1..4),
            metrics in prop::sample::subsequence(vec!["cpu_s", "cpu_pcpus", "progress"], 1..=3),
        ) {
            let mut head = HEAD.to_owned();
            (0..3).for_each(|n| head += &vm(&format!("vm{n}"), 1));
            (0..4).for_each(|n| write!(head, "[[case]]\nname = \"case {n}\"\n").unwrap());
            let bounds = |&(min, max): &(u32, Option<u32>)| {
                let max = max.map(|max| format!(", max = {max}")).unwrap_or_default();
                format!("min = {min}{max}")
            };
            let cases: Vec<_> = cases.iter().map(|n| format!("case {n}")).collect();
            let vms: Vec<_> = vms.iter().map(|n| format!("vm{n}")).collect();
            let each: Vec<_> = rows.iter().map(|row| format!("{{ {} }}", bounds(row))).collect();
            let metrics: Vec<_> = metrics.iter().map(|&metric| metric.to_owned()).collect();
            let lists = format!(
                "{head}[[expect]]\nfor.metric = {}\nmetric = \"{{metric}}\"\ncase = {}\nvm = {}\neach = [{}]\n",
                quoted(&metrics), quoted(&cases), quoted(&vms), each.join(", "),
            );
            let mut blocks = head;
            for metric in &metrics {
                for row in &rows {
                    for case in &cases {
                        for vm in &vms {
                            let bounds = bounds(row).replace(", ", "\n");
                            write!(
                                blocks,
                                "[[expect]]\nmetric = \"{metric}\"\ncase = \"{case}\"\nvm = \"{vm}\"\n{bounds}\n"
                            )
                            .unwrap();
                        }
                    }
                }
            }
            prop_assert_eq!(parse(&lists), parse(&blocks));
        }
    }
}
