//! The opening: directory, lock, format, load, and the incarnation that must be durable before anybody
//! is served.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use redb::backends::FileBackend;
use redb::{ReadableTable, StorageBackend};

use crate::error::StorageError;
use crate::failpoint;
use crate::lineage::{self, Incarnation, Lineage};
use crate::resource_version::{ResourceVersion, Revision};
use crate::retention::Ages;
use crate::state::State;

use super::disk::BackendFactory;
use super::early;
use super::handle::Handle;
use super::load::{self, Loaded};
use super::log::{Clock, RedbLog, Shared};
use super::options::RedbOptions;
use super::push_rows;
use super::tables::{self, INCS, Meta, TIMES};

const FILE: &str = "store.redb";
/// A new store is made under this name, so that a crash in between leaves no half-made store.
const FILE_NEW: &str = "store.redb.new";
const LOCK: &str = "store.lock";

/// An opened store, ready to be served.
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: RedbLog,
    pub(crate) state: State,
}

/// The data directory while a store in it is open.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Whether the store is still to be made.
    is_new: bool,
    /// Held as long as the store is open; keeps a second process out also while redb reopens its file.
    _lock: File,
}

impl Directory {
    /// Makes the directory if need be, takes its lock, and looks at the file.
    pub(crate) fn enter(path: &Path) -> Result<Self, StorageError> {
        let problem = |path: &Path, problem: String| StorageError::Open { path: path.to_owned(), problem };
        if path.exists() && !path.is_dir() {
            let text = "is not a directory: name a directory, the store is a file in it";
            return Err(problem(path, text.to_owned()));
        }
        std::fs::create_dir_all(path).map_err(|error| {
            problem(path, format!("cannot be created ({error}): create it, or name another directory"))
        })?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|error| {
            problem(&lock_path, format!("cannot be written ({error}): make the data directory writable"))
        })?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(problem(path, "is in use by another process: stop it first".to_owned()));
            }
            // A file system without locks; redb tries its own.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let file = path.join(FILE);
        let is_new = match file.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(problem(&file, format!("cannot be looked at: {error}"))),
            Ok(metadata) if !metadata.is_file() => {
                return Err(problem(&file, "is not a file: move it out of the data directory".to_owned()));
            }
            Ok(metadata) if metadata.len() == 0 => {
                let text = "is empty (0 bytes), so its content was lost: restore a backup, or remove the \
                            file to begin without data";
                return Err(problem(&file, text.to_owned()));
            }
            Ok(_) => false,
        };
        if is_new {
            // Left by a crash while a store was made; nobody was served from it.
            drop(std::fs::remove_file(path.join(FILE_NEW)));
        }
        Ok(Self { path: path.to_owned(), is_new, _lock: lock })
    }

    /// Opens the file, under whichever name it has at the time.
    pub(crate) fn factory(&self) -> BackendFactory {
        let (file, new) = (self.path.join(FILE), self.path.join(FILE_NEW));
        let is_new = self.is_new;
        Arc::new(move || {
            let make = is_new && !file.exists();
            let path = if make { &new } else { &file };
            let file = OpenOptions::new().read(true).write(true).create(make).truncate(false).open(path)?;
            let backend = FileBackend::new(file).map_err(io::Error::other)?;
            Ok(Box::new(backend) as Box<dyn StorageBackend>)
        })
    }

    /// Has the kernel read the whole file, in its own time: what is read next may already be there.
    pub(crate) fn read_ahead(&self) {
        if let Ok(file) = File::open(self.path.join(FILE)) {
            // Advice; where it is not taken, reading is slower and nothing else.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::WillNeed);
        }
    }

    /// Gives a new store its name; called once the incarnation is durable.
    pub(crate) fn settle(&self) -> io::Result<()> {
        if self.is_new {
            std::fs::rename(self.path.join(FILE_NEW), self.path.join(FILE))?;
            File::open(&self.path)?.sync_all()?;
            if let Some(parent) = self.path.canonicalize()?.parent() {
                // The directory may be new as well.
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(())
    }
}

/// Opens the file, loads it, and begins an incarnation. Of a store that is in `directory` already, redb
/// checks every page, while it is being loaded.
pub(crate) fn open(
    options: &RedbOptions,
    factory: &BackendFactory,
    directory: Option<&Directory>,
) -> Result<Opened, StorageError> {
    let began = Instant::now();
    let path = options.path.join(FILE);
    let progress = options.progress.as_ref();
    let open = |verify| Handle::open(Arc::clone(factory), options.cache_bytes, options.quick_repair, verify);
    let opened = match directory.filter(|directory| !directory.is_new) {
        Some(directory) => early::load_beside(factory, progress, || directory.read_ahead(), || open(true)),
        None => open(false).map(|handle| (handle, None)),
    };
    let (handle, early) = opened.map_err(|error| cannot_open(&path, error))?;
    let meta = existing_or_new(&handle, &path)?;
    let txn = handle.begin_read()?;
    let mut loaded = match early {
        Some(loaded) => loaded,
        None => load::load(&txn, progress, &AtomicBool::new(false))?,
    };
    push_rows::read(&txn, &mut loaded.state)?;
    let rows = tables::rows(&txn, INCS, |index, row| Ok((index, tables::decode_incarnation(row)?)))?;
    let times = tables::rows(&txn, TIMES, |revision, ms| Ok((Revision(revision), ms)))?;
    drop(txn);
    failpoint::hit("open-before-incarnation");
    let incarnation = begin_incarnation(&handle, options, meta, rows, loaded.last)
        .map_err(|error| cannot_open(&path, error))?;
    failpoint::hit("open-after-incarnation");
    options.metrics.clock(incarnation.clock_trusted);
    options.metrics.loaded(began.elapsed());
    Ok(assemble(options, handle, loaded, incarnation, times, began))
}

/// What [`begin_incarnation`] made durable.
struct BegunStore {
    lineage: Lineage,
    rows: VecDeque<u32>,
    clock_trusted: bool,
    /// The last durable revision and the time of the opening, if no row covered it yet.
    time: Option<(Revision, u64)>,
}

/// The identity of the store in the file; makes one if the file is new.
fn existing_or_new(handle: &Handle, path: &Path) -> Result<Meta, StorageError> {
    let txn = handle.begin_read()?;
    if let Some(meta) = Meta::read(&txn)? {
        return Ok(meta);
    }
    let is_blank = txn.list_tables().map_err(tables::damaged)?.next().is_none();
    drop(txn);
    if !is_blank {
        let problem = "is a database of another program: move it away, or name another directory".to_owned();
        return Err(StorageError::Open { path: path.to_owned(), problem });
    }
    let meta = Meta { store: uuid::Uuid::new_v4() };
    let create = || {
        let txn = handle.begin_write()?;
        tables::create(&txn)?;
        meta.write(&txn)?;
        Ok(txn.commit()?)
    };
    create().map_err(|error| cannot_open(path, error))?;
    Ok(meta)
}

/// Closes the previous incarnation at the last durable revision and begins one, in one transaction.
fn begin_incarnation(
    handle: &Handle,
    options: &RedbOptions,
    meta: Meta,
    rows: Vec<(u32, Incarnation)>,
    last_record: Revision,
) -> Result<BegunStore, redb::Error> {
    let (mut rows, mut incarnations): (VecDeque<u32>, Vec<Incarnation>) = rows.into_iter().unzip();
    // A store without events since its opening stands at the opening's start, and has shown it.
    let last = last_record.max(incarnations.last().map_or(Revision::ZERO, |previous| previous.start));
    let begun = lineage::begin(&incarnations, last, &options.opening);
    if !begun.clock_trusted {
        tracing::warn!(
            opened_ms = begun.incarnation.opened_ms,
            "the clock is implausible; revisions go on above the last one"
        );
    }
    let txn = handle.begin_write()?;
    // From here on an older program must not write the file: it would neither know what is push-managed nor
    // keep the roster.
    meta.write(&txn)?;
    tables::create(&txn)?;
    let mut time = None;
    {
        let mut table = txn.open_table(INCS)?;
        if let (Some(index), Some(previous)) = (rows.back(), incarnations.last_mut()) {
            previous.end.get_or_insert(last);
            table.insert(index, tables::encode_incarnation(previous).as_slice())?;
        }
        let index = rows.back().map_or(0, |index| index + 1);
        table.insert(index, tables::encode_incarnation(&begun.incarnation).as_slice())?;
        rows.push_back(index);
        let mut times = txn.open_table(TIMES)?;
        let covered = times.last()?.is_some_and(|(revision, _)| revision.value() >= last_record.0);
        if last_record > Revision::ZERO && !covered {
            times.insert(last_record.0, begun.incarnation.opened_ms)?;
            time = Some((last_record, begun.incarnation.opened_ms));
        }
    }
    txn.commit()?;
    incarnations.push(begun.incarnation);
    let lineage = Lineage { store: meta.store, incarnations };
    Ok(BegunStore { lineage, rows, clock_trusted: begun.clock_trusted, time })
}

fn assemble(
    options: &RedbOptions,
    handle: Handle,
    loaded: Loaded,
    begun: BegunStore,
    times: Vec<(Revision, u64)>,
    since: Instant,
) -> Opened {
    let current = begun.lineage.current();
    let mut state = loaded.state;
    state.set_head(ResourceVersion::new(current.start, current.tag));
    let opened_ms = current.opened_ms;
    // A row of a clock that stood in the future would keep history for too long.
    let times = times.into_iter().map(|(revision, ms)| (revision, ms.min(opened_ms))).chain(begun.time);
    let age_ms = options.history_age.as_millis().try_into().unwrap_or(u64::MAX);
    let shared = Arc::new(Shared::new(handle, loaded.history, begun.lineage));
    let log = RedbLog {
        shared: Arc::clone(&shared),
        type_ids: loaded.type_ids,
        new_types: Vec::new(),
        incarnation_rows: begun.rows,
        ages: Ages::new(age_ms, times),
        history_bytes: options.history_bytes,
        clock: Clock { opened_ms, since },
        metrics: options.metrics.clone(),
        directory: None,
    };
    Opened { shared, log, state }
}

/// The one line an operator gets.
fn cannot_open(path: &Path, error: redb::Error) -> StorageError {
    let problem = match error {
        redb::Error::DatabaseAlreadyOpen => "is in use by another process: stop it first".to_owned(),
        redb::Error::UpgradeRequired(version) => {
            format!("has the file format {version} of an older redb: write it anew from a backup")
        }
        redb::Error::Corrupted(problem) => damaged_text(&problem),
        redb::Error::Io(error) => match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => damaged_text(&error),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                format!("cannot be written ({error}): make the file and its directory writable")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "cannot be opened because the disk is full: free space first".to_owned()
            }
            _ => format!("cannot be opened: {error}"),
        },
        other => format!("cannot be opened: {other}"),
    };
    StorageError::Open { path: path.to_owned(), problem }
}

fn damaged_text(problem: &dyn std::fmt::Display) -> String {
    format!(
        "is damaged or no store ({problem}): restore a backup, or move the file away to begin without data"
    )
}
