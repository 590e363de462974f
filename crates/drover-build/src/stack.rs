// SPDX-License-Identifier: GPL-2.0-only
//! How much stack a BPF program takes.
//!
//! A kernel refuses a program whose functions, one calling the other, take more than 512 bytes together or are
//! more than eight. Newer kernels give some kinds of programs a stack of their own and are silent; so what
//! was written beside one would be found too deep by the user of an older one. It is counted as the verifier
//! counts it (`check_max_stack_depth` in kernel/bpf/verifier.c), but over all calls there are, possible or not.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};

/// The most bytes, each function's rounded up to [`FRAME_ALIGN`].
pub const BYTES_MAX: u64 = 512;
/// The most functions that are called one by the other.
pub const FRAMES_MAX: usize = 8;
const FRAME_ALIGN: u64 = 16;

const INSTRUCTION: usize = 8;
const FRAME_POINTER: u8 = 10;
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
const MOVE_REGISTER: u8 = 0xbf;
const ADD_NUMBER: u8 = 0x07;
const CLASS_LOAD: u8 = 1;
const CLASS_STORES: [u8; 2] = [2, 3];

/// The deepest way through a program: its functions, and the bytes they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// From the entry on.
    pub functions: Vec<String>,
    /// Bytes of stack.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Function {
    name: String,
    bytes: u64,
    calls: Vec<Place>,
}

/// Section and address in it.
type Place = (usize, u64);

/// The ways through an object file that take the most bytes and the most functions.
///
/// # Errors
/// When it is no object file.
pub fn deepest(data: &[u8]) -> object::Result<[Way; 2]> {
    let functions = functions(&object::File::parse(data)?)?;
    let ways: Vec<Way> = functions.keys().flat_map(|&place| ways(&functions, place)).collect();
    Ok(deepest_of(&ways))
}

/// Of these, the way of the most bytes and that of the most functions.
fn deepest_of(ways: &[Way]) -> [Way; 2] {
    let by_bytes = ways.iter().max_by_key(|way| way.bytes).cloned();
    let by_length = ways.iter().max_by_key(|way| way.functions.len()).cloned();
    [by_bytes.unwrap_or_default(), by_length.unwrap_or_default()]
}

/// The ways from there on that take the most bytes and the most functions. BPF has no recursion.
fn ways(functions: &BTreeMap<Place, Function>, place: Place) -> [Way; 2] {
    let Some(function) = functions.get(&place) else { return [Way::default(), Way::default()] };
    let below: Vec<Way> = function.calls.iter().flat_map(|&call| ways(functions, call)).collect();
    deepest_of(&below).map(|mut way| {
        way.functions.insert(0, function.name.clone());
        way.bytes += function.bytes.max(1).next_multiple_of(FRAME_ALIGN);
        way
    })
}

fn functions(file: &object::File) -> object::Result<BTreeMap<Place, Function>> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let Some(index) = symbol.section_index() else { continue };
        let section = file.section_by_index(index)?;
        let Some(code) = section.data_range(symbol.address(), symbol.size())? else { continue };
        let mut function =
            Function { name: symbol.name()?.to_owned(), bytes: bytes(code), calls: Vec::new() };
        let relocated: BTreeMap<u64, RelocationTarget> =
            section.relocations().map(|(offset, to)| (offset, to.target())).collect();
        for (number, call) in code.chunks_exact(INSTRUCTION).enumerate() {
            if call[0] != CALL || call[1] >> 4 != PSEUDO_CALL {
                continue;
            }
            let offset = symbol.address() + (number * INSTRUCTION) as u64;
            function.calls.extend(called(file, index, offset, call, relocated.get(&offset)));
        }
        functions.insert((index.0, symbol.address()), function);
    }
    Ok(functions)
}

/// The function an instruction calls; none for one of the kernel's.
fn called(
    file: &object::File,
    section: SectionIndex,
    offset: u64,
    call: &[u8],
    relocated: Option<&RelocationTarget>,
) -> Option<Place> {
    let after = (i64::from(number(call)) + 1) * INSTRUCTION as i64;
    match relocated {
        None => Some((section.0, offset.checked_add_signed(after)?)),
        Some(&RelocationTarget::Symbol(index)) => {
            let symbol = file.symbol_by_index(index).ok()?;
            let section = symbol.section_index()?;
            let within = if symbol.kind() == SymbolKind::Section { after } else { 0 };
            Some((section.0, symbol.address().checked_add_signed(within)?))
        }
        Some(_) => None,
    }
}

fn number(instruction: &[u8]) -> i32 {
    i32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]])
}

/// How far below its frame pointer a function reaches.
fn bytes(code: &[u8]) -> u64 {
    let mut deepest = 0;
    let mut copy_of_pointer = None;
    for instruction in code.chunks_exact(INSTRUCTION) {
        let (operation, to, from) = (instruction[0], instruction[1] & 15, instruction[1] >> 4);
        let offset = i64::from(i16::from_le_bytes([instruction[2], instruction[3]]));
        let class = operation & 7;
        if (class == CLASS_LOAD && from == FRAME_POINTER)
            || (CLASS_STORES.contains(&class) && to == FRAME_POINTER)
        {
            deepest = deepest.max(-offset);
        }
        if operation == ADD_NUMBER && copy_of_pointer == Some(to) {
            deepest = deepest.max(-i64::from(number(instruction)));
        }
        copy_of_pointer = (operation == MOVE_REGISTER && from == FRAME_POINTER).then_some(to);
    }
    u64::try_from(deepest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_read_and_pointed_to_counts() {
        let store = [0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0]; // *(u64 *)(r10 - 8) = r1
        let point = [0xbf, 0xa2, 0, 0, 0, 0, 0, 0]; // r2 = r10
        let below = [0x07, 0x02, 0, 0, 0xd0, 0xff, 0xff, 0xff]; // r2 += -48
        assert_eq!(bytes(&store), 8);
        assert_eq!(bytes(&[store, point, below].concat()), 48);
        assert_eq!(bytes(&[store, below].concat()), 8, "another's register");
    }

    #[test]
    fn the_deepest_way_is_found() {
        let at = |number| (1, number);
        let function = |name: &str, bytes, calls: &[u64]| Function {
            name: name.to_owned(),
            bytes,
            calls: calls.iter().map(|&number| at(number)).collect(),
        };
        let functions = BTreeMap::from([
            (at(0), function("entry", 20, &[1, 2])),
            (at(1), function("wide", 100, &[])),
            (at(2), function("long", 0, &[3])),
            (at(3), function("end", 0, &[])),
        ]);
        let [by_bytes, by_length] = ways(&functions, at(0));
        assert_eq!(
            (by_bytes.bytes, by_bytes.functions),
            (32 + 112, vec!["entry".into(), "wide".into()])
        );
        assert_eq!((by_length.bytes, by_length.functions.len()), (32 + 16 + 16, 3));
    }
}
