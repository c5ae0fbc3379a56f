//! The notation of scripts.
//!
//! ```text
//! # a comment
//! == w9 what the script shows            a script begins; its steps are w9.1, w9.2, …
//! POST $widgets                           a request: method, path and query
//!   Accept: application/json              indented: a header,
//!   {$widget,"metadata":{"name":"a"}}     or a line of the body,
//!   -> rv = /metadata/resourceVersion     or a part of the answer's body to keep as $rv
//! WATCH w $widgets?watch=1&…              opens a watch named w; headers as above
//! SOCKET w $widgets?watch=1&…             the same over WebSocket
//! EVENTS w 2                              the next two events; bookmarks without annotations are left out
//! UNTIL w b                               events up to the first whose object is named b
//! BOOKMARK w                              events up to the next bookmark
//! END w                                   events up to the end of the stream
//! CLOSE w                                 hangs up
//! PAGES $widgets?limit=2                  a list, page by page
//! AWAIT 200 PATH                          asks until this code is answered; not compared
//! FILL 300 POST $widgets                  a request many times, # being its number; only codes are compared
//! RACE 8 PUT $widgets/a                   a request many times at once; only codes are compared
//! COMPACT                                 both servers forget their history and start again; not compared
//! RESTART                                 both are ended by SIGTERM and start again; not compared
//! KILL                                    both are ended by SIGKILL and start again; not compared
//! ```
//!
//! `$name` is what a `->` kept, per server, or one of the names in [`NAMES`].

use std::fmt;

use crate::process::End;

/// What scripts need not spell out.
pub(crate) const NAMES: [(&str, &str); 12] = [
    ("widgets", "/apis/example.io/v1/namespaces/n1/widgets"),
    ("allwidgets", "/apis/example.io/v1/widgets"),
    ("gadgets", "/apis/example.io/v1/gadgets"),
    ("gizmos", "/apis/example.io/v1/namespaces/n1/gizmos"),
    ("widget", r#""apiVersion":"example.io/v1","kind":"Widget""#),
    ("gadget", r#""apiVersion":"example.io/v1","kind":"Gadget""#),
    ("gizmo", r#""apiVersion":"example.io/v1","kind":"Gizmo""#),
    ("future", "9000000000000000000"),
    ("table", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ("partial", "application/json;as=PartialObjectMetadata;g=meta.k8s.io"),
    ("partiallist", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io"),
    ("aggregated", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
];

/// One scene: steps that follow each other, from empty collections on.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One line with what is indented below it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Names and JSON pointers into the answer.
    pub(crate) keep: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Request { method: String, path: String },
    Watch { name: String, path: String },
    Socket { name: String, path: String },
    Read { name: String, until: Until },
    Close { name: String },
    Pages { path: String },
    Await { code: u16, path: String },
    Fill { count: usize, method: String, path: String },
    Race { count: usize, method: String, path: String },
    Compact,
    Restart(End),
}

/// How far events are read.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    Count(usize),
    Named(String),
    Bookmark,
    End,
}

impl Step {
    pub(crate) fn new(action: Action) -> Self {
        Self { action, headers: vec![], body: String::new(), keep: vec![] }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Request { method, path } => write!(f, "{method} {path}"),
            Action::Watch { name, path } => write!(f, "WATCH {name} {path}"),
            Action::Read { name, until: Until::Count(count) } => write!(f, "EVENTS {name} {count}"),
            Action::Read { name, until: Until::Named(object) } => write!(f, "UNTIL {name} {object}"),
            Action::Read { name, until: Until::Bookmark } => write!(f, "BOOKMARK {name}"),
            Action::Read { name, until: Until::End } => write!(f, "END {name}"),
            Action::Close { name } => write!(f, "CLOSE {name}"),
            Action::Pages { path } => write!(f, "PAGES {path}"),
            Action::Await { code, path } => write!(f, "AWAIT {code} {path}"),
            Action::Socket { name, path } => write!(f, "SOCKET {name} {path}"),
            Action::Fill { count, method, path } => write!(f, "FILL {count} {method} {path}"),
            Action::Race { count, method, path } => write!(f, "RACE {count} {method} {path}"),
            Action::Compact => write!(f, "COMPACT"),
            Action::Restart(End::Graceful) => write!(f, "RESTART"),
            Action::Restart(End::Killed) => write!(f, "KILL"),
        }?;
        for (name, value) in &self.headers {
            write!(f, "\n  {name}: {value}")?;
        }
        if !self.body.is_empty() {
            write!(f, "\n  {}", self.body)?;
        }
        self.keep.iter().try_for_each(|(name, pointer)| write!(f, "\n  -> {name} = {pointer}"))
    }
}

/// The scripts of a file; an error names the line.
pub(crate) fn parse(text: &str) -> Result<Vec<Script>, String> {
    let mut scripts: Vec<Script> = vec![];
    for (number, line) in (1..).zip(text.lines()) {
        let at = |what: &str| format!("line {number}: {what}: {line}");
        let written = line.trim();
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            let name = title.split(' ').next().unwrap_or_default().to_owned();
            if scripts.iter().any(|script| script.name == name) {
                return Err(at("this script is there already"));
            }
            scripts.push(Script { name, steps: vec![] });
            continue;
        }
        let script = scripts.last_mut().ok_or_else(|| at("no script has begun"))?;
        if line.starts_with(' ') {
            let step = script.steps.last_mut().ok_or_else(|| at("no step to belong to"))?;
            indented(step, written).ok_or_else(|| at("not understood"))?;
        } else {
            script.steps.push(Step::new(action(written).ok_or_else(|| at("not understood"))?));
        }
    }
    Ok(scripts)
}

fn indented(step: &mut Step, line: &str) -> Option<()> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    if let Some(keep) = line.strip_prefix("-> ") {
        let (name, pointer) = keep.split_once(" = ")?;
        step.keep.push((name.to_owned(), pointer.to_owned()));
    } else if let Some((name, value)) = line.split_once(": ").filter(|(name, _)| is_name(name)) {
        step.headers.push((name.to_owned(), value.to_owned()));
    } else {
        if !step.body.is_empty() {
            step.body.push('\n');
        }
        step.body.push_str(line);
    }
    Some(())
}

fn action(line: &str) -> Option<Action> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let two = || rest.split_once(' ').map(|(first, second)| (first.to_owned(), second.to_owned()));
    let many = || {
        let (count, request) = rest.split_once(' ')?;
        let (method, path) = request.split_once(' ')?;
        Some((count.parse().ok()?, method.to_owned(), path.to_owned()))
    };
    let read = |until| Action::Read { name: rest.to_owned(), until };
    Some(match verb {
        "WATCH" => two().map(|(name, path)| Action::Watch { name, path })?,
        "EVENTS" => {
            let (name, count) = two()?;
            Action::Read { name, until: Until::Count(count.parse().ok()?) }
        }
        "UNTIL" => two().map(|(name, object)| Action::Read { name, until: Until::Named(object) })?,
        "BOOKMARK" => read(Until::Bookmark),
        "END" => read(Until::End),
        "CLOSE" => Action::Close { name: rest.to_owned() },
        "PAGES" => Action::Pages { path: rest.to_owned() },
        "AWAIT" => two().and_then(|(code, path)| Some(Action::Await { code: code.parse().ok()?, path }))?,
        "SOCKET" => two().map(|(name, path)| Action::Socket { name, path })?,
        "FILL" => many().map(|(count, method, path)| Action::Fill { count, method, path })?,
        "RACE" => many().map(|(count, method, path)| Action::Race { count, method, path })?,
        "COMPACT" => Action::Compact,
        "RESTART" => Action::Restart(End::Graceful),
        "KILL" => Action::Restart(End::Killed),
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS" => {
            Action::Request { method: verb.to_owned(), path: rest.to_owned() }
        }
        _ => return None,
    })
}
