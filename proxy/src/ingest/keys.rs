//! Duplicate keys: whether an object names a member twice, and where.
//!
//! Keys of the open objects lie on one stack, each object's after its parent's. Small objects are
//! compared pair by pair as keys come; large ones are sorted when they end, so that a body made of
//! hundreds of thousands of keys costs n log n.

use std::fmt::Write as _;

use smallvec::SmallVec;

/// Keys of one object up to which each new key is compared with all before it.
const PAIRWISE_MAX: usize = 16;
/// Duplicates that are reported by name; Kubernetes' strict decoder stops at as many.
const REPORTED_MAX: usize = 100;

/// A key of an open object, decoded: bytes of the text, or of the arena if it was written with escapes.
#[derive(Clone, Copy)]
struct Key {
    at: u32,
    len: u32,
    decoded: bool,
}

/// An open object or array.
#[derive(Clone, Copy)]
struct Frame {
    keys_start: u32,
    /// Index of the current element, for arrays.
    element: Option<u32>,
}

/// The path to the current place in a document, and the keys seen on the way.
pub(super) struct Keys<'a> {
    text: &'a [u8],
    frames: SmallVec<[Frame; 24]>,
    stack: SmallVec<[Key; 48]>,
    arena: String,
    duplicates: Vec<String>,
    /// All of them, reported or not.
    found: usize,
}

impl<'a> Keys<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            frames: SmallVec::new(),
            stack: SmallVec::new(),
            arena: String::new(),
            duplicates: Vec::new(),
            found: 0,
        }
    }

    /// Containers that are open.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether the innermost open container is an array.
    pub(super) fn in_array(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.element.is_some())
    }

    /// Opens an object.
    pub(super) fn open_object(&mut self) {
        self.frames.push(Frame { keys_start: self.stack.len() as u32, element: None });
    }

    /// Opens an array, at its first element.
    pub(super) fn open_array(&mut self) {
        self.frames.push(Frame { keys_start: self.stack.len() as u32, element: Some(0) });
    }

    /// Goes on to the next element of the innermost array.
    pub(super) fn next_element(&mut self) {
        if let Some(Frame { element: Some(index), .. }) = self.frames.last_mut() {
            *index += 1;
        }
    }

    /// Whether the innermost object has no key yet.
    pub(super) fn is_first(&self) -> bool {
        self.frames.last().is_none_or(|frame| frame.keys_start as usize == self.stack.len())
    }

    /// Adds a key of the innermost object: `at..at + len` of the text, or its decoded form.
    pub(super) fn push(&mut self, at: usize, len: usize, decoded: Option<&str>) {
        let key = match decoded {
            None => Key { at: at as u32, len: len as u32, decoded: false },
            Some(text) => {
                let at = self.arena.len() as u32;
                self.arena.push_str(text);
                Key { at, len: text.len() as u32, decoded: true }
            }
        };
        let start = self.frames.last().map_or(0, |frame| frame.keys_start as usize);
        let earlier = &self.stack[start..];
        let duplicate = earlier.len() < PAIRWISE_MAX
            && earlier.iter().any(|other| other.len == key.len && self.bytes(*other) == self.bytes(key));
        self.stack.push(key);
        if duplicate {
            self.report(self.stack.len() - 1);
        }
    }

    /// Closes the innermost container.
    pub(super) fn close(&mut self) {
        let Some(start) = self.frames.last().map(|frame| frame.keys_start as usize) else { return };
        if self.stack.len() - start > PAIRWISE_MAX {
            self.find_sorted(start);
        }
        self.frames.pop();
        self.stack.truncate(start);
    }

    /// Paths of the duplicate keys, in the form of Kubernetes' strict decoder: `spec.a[0].b`.
    pub(super) fn into_duplicates(self) -> Vec<String> {
        self.duplicates
    }

    fn find_sorted(&mut self, start: usize) {
        let mut order: Vec<usize> = (start..self.stack.len()).collect();
        order.sort_by(|a, b| self.bytes(self.stack[*a]).cmp(self.bytes(self.stack[*b])));
        let mut found: Vec<usize> = order
            .windows(2)
            .filter(|pair| self.bytes(self.stack[pair[0]]) == self.bytes(self.stack[pair[1]]))
            .map(|pair| pair[1])
            // Those among the first keys were found as they came.
            .filter(|at| at - start >= PAIRWISE_MAX)
            .collect();
        found.sort_unstable();
        for at in found {
            self.report(at);
        }
    }

    fn bytes(&self, key: Key) -> &[u8] {
        let range = key.at as usize..(key.at + key.len) as usize;
        if key.decoded { &self.arena.as_bytes()[range] } else { &self.text[range] }
    }

    #[cold]
    fn report(&mut self, at: usize) {
        self.found += 1;
        if self.found > REPORTED_MAX {
            return;
        }
        let mut path = String::new();
        for pair in self.frames.windows(2) {
            match pair[0].element {
                Some(index) => {
                    let _ = write!(path, "[{index}]");
                }
                None => self.push_name(&mut path, pair[1].keys_start as usize - 1),
            }
        }
        self.push_name(&mut path, at);
        self.duplicates.push(path);
    }

    fn push_name(&self, path: &mut String, at: usize) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(&String::from_utf8_lossy(self.bytes(self.stack[at])));
    }
}
