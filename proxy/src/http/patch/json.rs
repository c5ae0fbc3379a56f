//! JSON patch: decoding operations, and applying them one by one within bounds.

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    TestOperation,
};
use serde_json::{Map, Value};

use super::{rejected, unmarshal};
use crate::ingest::DEPTH_MAX;
use crate::status::ApiError;

/// Bytes that all copies of one patch may add; kube-apiserver's bound.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Values that one patch may touch beside those it holds: what copies and moves measure, and elements
/// that make room in an array. Bounds the time a patch takes.
const TOUCHED_MAX: usize = 1 << 20;
/// Elements that make room in the time it takes to measure one.
const SHIFTED_PER_TOUCHED: usize = 16;

/// One operation.
#[derive(Debug)]
pub(crate) struct Operation(PatchOperation);

impl Operation {
    /// Decodes by hand: through serde, an object such as `{"$serde_json::private::Number": …}` would turn
    /// into a number.
    pub(super) fn decode(operation: Value) -> Result<Self, String> {
        let Value::Object(mut members) = operation else {
            return Err(unmarshal(&operation, "jsonpatch.Operation"));
        };
        let path = pointer(&members, "path")?;
        let name =
            members.get("op").and_then(Value::as_str).ok_or("op is missing, or not a string")?.to_owned();
        let mut value = || members.remove("value").ok_or_else(|| format!("{name} without a value"));
        Ok(Self(match name.as_str() {
            "add" => PatchOperation::Add(AddOperation { path, value: value()? }),
            "replace" => PatchOperation::Replace(ReplaceOperation { path, value: value()? }),
            "test" => PatchOperation::Test(TestOperation { path, value: value().unwrap_or(Value::Null) }),
            "remove" => PatchOperation::Remove(RemoveOperation { path }),
            "move" => PatchOperation::Move(MoveOperation { from: pointer(&members, "from")?, path }),
            "copy" => PatchOperation::Copy(CopyOperation { from: pointer(&members, "from")?, path }),
            other => return Err(format!("unknown op {other:?}")),
        }))
    }
}

impl Operation {
    /// Whether it tests or sets the version that the object has.
    pub(super) fn names_version(&self) -> bool {
        let path = match &self.0 {
            PatchOperation::Test(TestOperation { path, .. })
            | PatchOperation::Add(AddOperation { path, .. })
            | PatchOperation::Replace(ReplaceOperation { path, .. }) => path,
            PatchOperation::Remove(_) | PatchOperation::Move(_) | PatchOperation::Copy(_) => return false,
        };
        path.as_str() == "/metadata/resourceVersion"
    }
}

fn pointer(members: &Map<String, Value>, name: &str) -> Result<PointerBuf, String> {
    let text = members
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{name} is missing, or not a string"))?;
    PointerBuf::parse(text).map_err(|_| format!("{name} {text:?} is not a JSON pointer"))
}

/// Applies operations in order, until one does not fit.
pub(super) fn apply(operations: &[Operation], to: &mut Value) -> Result<(), ApiError> {
    let mut spent = Spent::default();
    for (at, Operation(operation)) in operations.iter().enumerate() {
        spent.check(operation, to)?;
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && is_absent_member(to, &test.path)
        {
            // As kube-apiserver: what is not there equals null.
            continue;
        }
        // As kube-apiserver, against RFC 6902: replacing a member that is not there adds it.
        let added = match operation {
            PatchOperation::Replace(ReplaceOperation { path, value }) if is_absent_member(to, path) => {
                Some(PatchOperation::Add(AddOperation { path: path.clone(), value: value.clone() }))
            }
            _ => None,
        };
        let operation = added.as_ref().unwrap_or(operation);
        json_patch::patch_unsafe(to, std::slice::from_ref(operation)).map_err(|error| {
            rejected(format!("operation {at} at path {:?}: {}", operation.path().as_str(), error.kind))
        })?;
    }
    Ok(())
}

fn is_absent_member(document: &Value, path: &Pointer) -> bool {
    let Some((parent, last)) = path.split_back() else { return false };
    let parent = document.pointer(parent.as_str());
    parent.and_then(Value::as_object).is_some_and(|object| !object.contains_key(&*last.decoded()))
}

/// What the operations of a patch have used up.
#[derive(Default)]
struct Spent {
    copied_bytes: usize,
    touched: usize,
}

impl Spent {
    /// Refuses an operation that nests too deep or exceeds what a patch may use up. A `from` that is
    /// not there is left to the operation itself.
    fn check(&mut self, operation: &PatchOperation, document: &Value) -> Result<(), ApiError> {
        match operation {
            PatchOperation::Add(AddOperation { path, value }) => {
                self.shift(path, document)?;
                check_depth(value, path)
            }
            PatchOperation::Replace(ReplaceOperation { path, value }) => check_depth(value, path),
            PatchOperation::Remove(RemoveOperation { path }) => self.shift(path, document),
            PatchOperation::Test(_) => Ok(()),
            PatchOperation::Move(MoveOperation { from, path }) => {
                self.shift(from, document)?;
                self.shift(path, document)?;
                self.carry(from, path, document).map(drop)
            }
            PatchOperation::Copy(CopyOperation { from, path }) => {
                self.shift(path, document)?;
                self.copied_bytes += self.carry(from, path, document)?;
                if self.copied_bytes > COPIED_BYTES_MAX {
                    return Err(ApiError::request_entity_too_large(format!(
                        "The copies of a JSON patch may add {COPIED_BYTES_MAX} bytes in all"
                    )));
                }
                Ok(())
            }
        }
    }

    /// Accounts for an element that comes or goes, if the path leads into an array.
    fn shift(&mut self, path: &Pointer, document: &Value) -> Result<(), ApiError> {
        let Some((parent, _)) = path.split_back() else { return Ok(()) };
        let elements = document.pointer(parent.as_str()).and_then(Value::as_array).map_or(0, Vec::len);
        self.touch(elements / SHIFTED_PER_TOUCHED)
    }

    /// Accounts for a value that goes from one place to another; its size in bytes.
    fn carry(&mut self, from: &Pointer, path: &Pointer, document: &Value) -> Result<usize, ApiError> {
        let Some(source) = document.pointer(from.as_str()) else { return Ok(0) };
        let mut size = Size::default();
        size.measure(source, tokens(path), TOUCHED_MAX);
        size.check_depth()?;
        self.touch(size.values)?;
        Ok(size.bytes)
    }

    fn touch(&mut self, values: usize) -> Result<(), ApiError> {
        self.touched += values;
        if self.touched < TOUCHED_MAX {
            return Ok(());
        }
        Err(ApiError::request_entity_too_large(format!(
            "A JSON patch may touch {TOUCHED_MAX} values of an object in all"
        )))
    }
}

fn check_depth(value: &Value, path: &Pointer) -> Result<(), ApiError> {
    let mut size = Size::default();
    size.measure(value, tokens(path), usize::MAX);
    size.check_depth()
}

fn tokens(path: &Pointer) -> usize {
    path.tokens().count()
}

/// How large a value is, and how deep it would reach.
#[derive(Default)]
struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

impl Size {
    /// Adds a value that lies inside `above` containers; stops at `values_max`. Recursion is bounded
    /// because every document here was checked to nest at most [`DEPTH_MAX`] deep.
    fn measure(&mut self, value: &Value, above: usize, values_max: usize) {
        self.values += 1;
        if self.values >= values_max {
            return;
        }
        match value {
            Value::Array(elements) => {
                self.depth = self.depth.max(above + 1);
                for element in elements {
                    self.measure(element, above + 1, values_max);
                }
            }
            Value::Object(members) => {
                self.depth = self.depth.max(above + 1);
                for (key, member) in members {
                    self.bytes += key.len() + 4;
                    self.measure(member, above + 1, values_max);
                }
            }
            Value::String(text) => self.bytes += text.len() + 2,
            Value::Number(number) => self.bytes += number.as_str().len(),
            Value::Null | Value::Bool(_) => {}
        }
        self.bytes += 4;
    }

    fn check_depth(&self) -> Result<(), ApiError> {
        if self.depth > DEPTH_MAX {
            return Err(rejected(format!("the result nests deeper than {DEPTH_MAX} levels")));
        }
        Ok(())
    }
}
