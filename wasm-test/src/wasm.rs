//! The built module taken apart: what it imports and exports, and where it can panic.

use std::collections::BTreeMap;
use std::fmt;

use wasmparser::{
    BinaryReaderError, DataKind, FunctionBody, KnownCustom, Name, Operator, Parser, Payload,
    TypeRef,
};

/// A WebAssembly module.
#[derive(Debug, Default)]
pub struct Module {
    /// `module.name`, in the module's order.
    pub imports: Vec<String>,
    /// Names, in the module's order.
    pub exports: Vec<String>,
    /// Demangled, without hashes, by function index. Of identical functions one name is kept.
    names: BTreeMap<u32, String>,
    calls: Vec<Call>,
    data: Vec<Segment>,
}

/// A direct call.
#[derive(Clone, Copy, Debug)]
struct Call {
    caller: u32,
    callee: u32,
    /// The constant pushed last before the call: its last argument, if that is constant.
    last_argument: Option<u32>,
}

#[derive(Debug)]
struct Segment {
    start: u32,
    bytes: Vec<u8>,
}

/// A place at which the module panics if it comes there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicSite {
    /// The function of the module.
    pub function: String,
    /// What it calls there.
    pub panics_by: String,
    /// The line of source that is blamed; `None` where the module does not say it in one constant.
    /// What a library checks on behalf of its caller (`#[track_caller]`) is the caller's line.
    pub location: Option<Location>,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// `src/…` in the module's own crate, `library/…` in the standard library, and
    /// `name-version/src/…` in any other crate.
    pub file: String,
    /// From 1 on.
    pub line: u32,
}

impl Module {
    /// Takes `bytes` apart.
    pub fn parse(bytes: &[u8]) -> Result<Self, BinaryReaderError> {
        let mut module = Self::default();
        let mut imported = 0;
        let mut defined = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        imported += u32::from(matches!(import.ty, TypeRef::Func(_)));
                        let name = format!("{}.{}", import.module, import.name);
                        module.imports.push(name);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        module.exports.push(export?.name.to_owned());
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    module.read_calls(imported + defined, &body)?;
                    defined += 1;
                }
                Payload::DataSection(section) => {
                    for segment in section {
                        module.read_data(&segment?)?;
                    }
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(names) = section.as_known() {
                        module.read_names(names)?;
                    }
                }
                _ => {}
            }
        }
        Ok(module)
    }

    /// The functions' names.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.names.values().map(String::as_str)
    }

    /// Every direct call: the names of who calls and of what is called.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.calls.iter().filter_map(|call| {
            let caller = self.names.get(&call.caller)?;
            Some((caller.as_str(), self.names.get(&call.callee)?.as_str()))
        })
    }

    /// Every direct call of a function that panics, from a function that is none itself.
    pub fn panic_sites(&self) -> Vec<PanicSite> {
        let sites = self.calls.iter().filter_map(|call| {
            let function = self.names.get(&call.caller)?;
            let panics_by = self.names.get(&call.callee)?;
            let inside = is_panic(function) || !is_panic(panics_by);
            (!inside).then(|| PanicSite {
                function: function.clone(),
                panics_by: panics_by.clone(),
                location: call.last_argument.and_then(|at| self.location(at)),
            })
        });
        let mut sites: Vec<_> = sites.collect();
        sites.sort();
        sites
    }

    fn read_calls(
        &mut self,
        caller: u32,
        body: &FunctionBody<'_>,
    ) -> Result<(), BinaryReaderError> {
        let mut last_argument = None;
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::I32Const { value } => last_argument = Some(value.cast_unsigned()),
                Operator::Call { function_index } => {
                    self.calls.push(Call {
                        caller,
                        callee: function_index,
                        last_argument: last_argument.take(),
                    });
                }
                _ => last_argument = None,
            }
        }
        Ok(())
    }

    fn read_data(&mut self, segment: &wasmparser::Data<'_>) -> Result<(), BinaryReaderError> {
        if let DataKind::Active { offset_expr, .. } = &segment.kind
            && let Operator::I32Const { value } = offset_expr.get_operators_reader().read()?
        {
            self.data.push(Segment {
                start: value.cast_unsigned(),
                bytes: segment.data.to_vec(),
            });
        }
        Ok(())
    }

    fn read_names(
        &mut self,
        names: wasmparser::NameSectionReader<'_>,
    ) -> Result<(), BinaryReaderError> {
        for part in names {
            if let Name::Function(functions) = part? {
                for naming in functions {
                    let naming = naming?;
                    let name = format!("{:#}", rustc_demangle::demangle(naming.name));
                    self.names.insert(naming.index, name);
                }
            }
        }
        Ok(())
    }

    /// Reads a `core::panic::Location`: a file name's address and length, a line, a column.
    fn location(&self, at: u32) -> Option<Location> {
        let field = |index: u32| {
            let bytes = self.memory(at.checked_add(index * 4)?, 4)?;
            Some(u32::from_le_bytes(*bytes.first_chunk()?))
        };
        let file = std::str::from_utf8(self.memory(field(0)?, field(1)?)?).ok()?;
        let is_source = std::path::Path::new(file)
            .extension()
            .is_some_and(|extension| extension == "rs");
        Some(Location {
            file: is_source.then(|| in_package(file).to_owned())?,
            line: field(2)?,
        })
    }

    /// Bytes of the memory the module starts with.
    fn memory(&self, at: u32, len: u32) -> Option<&[u8]> {
        self.data.iter().find_map(|segment| {
            let start = at.checked_sub(segment.start)? as usize;
            segment.bytes.get(start..start.checked_add(len as usize)?)
        })
    }
}

/// `file` without the folders above its package, which differ from machine to machine.
fn in_package(file: &str) -> &str {
    if let Some(at) = file.find("/library/") {
        return &file[at + 1..];
    }
    // Cargo keeps its packages in a `src`, too: the last one is the package's.
    let package = file.rfind("/src/").and_then(|at| file[..at].rfind('/'));
    package.map_or(file, |at| &file[at + 1..])
}

/// Whether a function of this name only ever panics. What ends the VM for want of memory
/// (`alloc::alloc::handle_alloc_error`, `alloc::raw_vec::handle_error` and `capacity_overflow`) is
/// not among them: nothing that allocates can be written without it, and what the module allocates
/// is bounded by its configuration.
fn is_panic(name: &str) -> bool {
    const MODULES: [&str; 3] = ["core::panicking::", "std::panicking::", "__rustc::rust_"];
    const FUNCTIONS: [&str; 8] = [
        "panic_already_borrowed",
        "panic_already_mutably_borrowed",
        "unwrap_failed",
        "expect_failed",
        "slice_index_fail",
        "slice_error_fail",
        "slice_error_fail_rt",
        "assert_failed",
    ];
    MODULES.iter().any(|module| name.starts_with(module))
        || name
            .rsplit("::")
            .next()
            .is_some_and(|last| FUNCTIONS.contains(&last))
        || name.ends_with("_fail")
}

impl fmt::Display for PanicSite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            panics_by,
            location,
        } = self;
        match location {
            Some(Location { file, line }) => write!(out, "{file}:{line}: "),
            None => write!(out, "(no location): "),
        }?;
        write!(out, "{panics_by} in {function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_from_its_package_on() {
        for (file, expected) in [
            ("src/flow/stream.rs", "src/flow/stream.rs"),
            (
                "/rustc/59807616/library/core/src/str/pattern.rs",
                "library/core/src/str/pattern.rs",
            ),
            (
                "/home/me/.cargo/registry/src/index-1949/serde_json-1.0.154/src/de.rs",
                "serde_json-1.0.154/src/de.rs",
            ),
        ] {
            assert_eq!(in_package(file), expected);
        }
    }

    #[test]
    fn only_functions_that_never_return_count_as_panics() {
        for name in [
            "core::panicking::panic_fmt",
            "core::panicking::panic_const::panic_const_div_by_zero",
            "core::option::unwrap_failed",
            "core::result::unwrap_failed",
            "core::slice::index::slice_index_fail",
            "core::cell::panic_already_borrowed",
            "alloc::vec::Vec<T,A>::remove::assert_failed",
            "std::panicking::begin_panic::<&str>",
        ] {
            assert!(is_panic(name), "{name}");
        }
        for name in [
            "alloc::raw_vec::handle_error",
            "inline_epp::flow::decide::route",
            "core::fmt::write",
        ] {
            assert!(!is_panic(name), "{name}");
        }
    }
}
