//! Compressed pages of lists, kept for the next list that has the same objects in a row.
//!
//! A page is known by its content: the revisions of its objects, which stand for their bytes, and the form
//! they are shown in. So nothing is ever invalidated: a changed object makes another page, and the page it
//! was in is not asked for any more and makes room. Pages end where an object's revision says so, whatever
//! is before and after them; so lists of the same objects share pages, and a change costs its own page.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shardcache_storage::{Object, Revision};

use super::member::Part;
use crate::body::Weave;
use crate::metrics::GzipMetrics;
use crate::represent::Form;

/// A page has at least so many bytes of objects before it is compressed, unless the list ends.
const PAGE_BYTES_MIN: usize = 32 << 10;
/// A page ends at so many, wherever that is.
const PAGE_BYTES_MAX: usize = 128 << 10;
/// Above the least length every so manieth object ends its page.
const ENDS_ONE_IN: u64 = 16;
/// What a page occupies beyond its compressed bytes and its key.
const OVERHEAD_BYTES: usize = 128;

/// The pages that are kept; shared by all lists.
#[derive(Debug)]
pub(crate) struct Pages {
    bytes_max: usize,
    metrics: GzipMetrics,
    kept: Mutex<Kept>,
}

/// Pages that were used since the last turn of generations, and those that were not.
#[derive(Debug, Default)]
struct Kept {
    recent: HashMap<Box<[u8]>, Arc<Part>>,
    older: HashMap<Box<[u8]>, Arc<Part>>,
    recent_bytes: usize,
    older_bytes: usize,
}

/// A run of objects in a list, in the making.
#[derive(Debug, Default)]
pub(crate) struct Page {
    objects: Vec<Object>,
    bytes: usize,
    ends_list: bool,
}

impl Page {
    /// Appends an object; whether the page goes on after it.
    pub(crate) fn add(&mut self, object: &Object, last: bool) -> bool {
        self.bytes += object.body_bytes().len();
        self.objects.push(object.clone());
        self.ends_list = last;
        let ends = self.bytes >= PAGE_BYTES_MIN && ends_page(object.revision());
        !ends && self.bytes < PAGE_BYTES_MAX
    }

    /// Objects in the page.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Everything that the page's bytes depend on.
    fn key(&self, form: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity((self.objects.len() + 1) * size_of::<u64>() + 1 + form.len());
        key.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for object in &self.objects {
            key.extend_from_slice(&object.revision().0.to_le_bytes());
        }
        key.push(u8::from(self.ends_list));
        key.extend_from_slice(form);
        key
    }

    fn compress(&self, form: &mut Form) -> Part {
        let mut weave = Weave::new();
        for (at, object) in self.objects.iter().enumerate() {
            form.listed(&mut weave, object, self.ends_list && at + 1 == self.objects.len());
        }
        Part::of(weave.take())
    }
}

/// A compressed page.
pub(crate) struct Compressed {
    pub(crate) part: Arc<Part>,
    /// It was kept from an earlier list.
    pub(crate) was_kept: bool,
}

impl Pages {
    /// No pages, and room for so many bytes of them.
    pub(crate) fn new(bytes_max: usize, metrics: GzipMetrics) -> Self {
        Self { bytes_max, metrics, kept: Mutex::default() }
    }

    /// The page in a form whose bytes depend on the objects and on `depends_on` only
    /// ([`Form::depends_on`]). Lists that lack it at the same time each make it.
    pub(crate) fn compressed(&self, page: &Page, form: &mut Form, depends_on: &[u8]) -> Compressed {
        let key = page.key(depends_on);
        let found = self.kept.lock().find(&key, self.bytes_max);
        if let Some(part) = found {
            self.metrics.pages_reused.inc();
            return Compressed { part, was_kept: true };
        }
        let part = Arc::new(page.compress(form));
        self.metrics.pages_made.inc();
        let mut kept = self.kept.lock();
        kept.insert(key.into(), Arc::clone(&part), self.bytes_max);
        self.metrics.page_bytes.set((kept.recent_bytes + kept.older_bytes) as i64);
        Compressed { part, was_kept: false }
    }
}

impl Kept {
    fn find(&mut self, key: &[u8], bytes_max: usize) -> Option<Arc<Part>> {
        if let Some(part) = self.recent.get(key) {
            return Some(Arc::clone(part));
        }
        let (key, part) = self.older.remove_entry(key)?;
        self.older_bytes -= occupied(&key, &part);
        self.insert(key, Arc::clone(&part), bytes_max);
        Some(part)
    }

    /// Either generation has half of the room; when the recent one is full, the older one is let go.
    fn insert(&mut self, key: Box<[u8]>, part: Arc<Part>, bytes_max: usize) {
        let bytes = occupied(&key, &part);
        if self.recent_bytes + bytes > bytes_max / 2 {
            self.older = std::mem::take(&mut self.recent);
            self.older_bytes = std::mem::take(&mut self.recent_bytes);
        }
        if bytes <= bytes_max / 2 && self.recent.insert(key, part).is_none() {
            self.recent_bytes += bytes;
        }
    }
}

fn occupied(key: &[u8], part: &Part) -> usize {
    key.len() + part.deflated().len() + OVERHEAD_BYTES
}

/// Whether an object ends the page it is in; its revision decides, so that it is the same in every list.
fn ends_page(revision: Revision) -> bool {
    // Neighbours have neighbouring revisions: spread them (Knuth's multiplicative hash).
    (revision.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(ENDS_ONE_IN)
}

#[cfg(test)]
mod tests;
