//! Administration of a running server over its admin socket, and tools to look at one.

mod freshness;
mod shards;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use bytes::{Buf, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::app::socket_path;
use crate::cli::{BackupArgs, PushArgs, ReleaseArgs};
use crate::failure::Failure;
use crate::replicate;

pub use freshness::freshness;
pub use shards::shards;

/// Where the server gives a copy of its store.
const BACKUP_PATH: &str = "/services/cache/admin/backup";
/// Where the server gives pushed cells back to ordinary writers.
const RELEASE_PATH: &str = "/services/cache/admin/release";

/// Streams a consistent copy of the store into a new file. The file is complete and durable when this
/// returns `Ok`; otherwise there is none.
pub fn backup(arguments: &BackupArgs) -> Result<(), Failure> {
    let output = &arguments.output;
    let mut file = File::create_new(output).map_err(|error| Failure::file("output", output, error))?;
    let copied = runtime()?.block_on(async {
        let response = request(&arguments.data_dir, Method::POST, BACKUP_PATH).await?;
        copy(response, &mut file, output).await
    });
    match copied {
        Ok(bytes) => {
            let _ = writeln!(std::io::stdout(), "wrote {}, {bytes} bytes", output.display());
            Ok(())
        }
        Err(failure) => {
            // Half a copy must not be taken for one.
            let _ = std::fs::remove_file(output);
            Err(failure)
        }
    }
}

/// Sends the lines of standard input as a push stream, and prints the cache's frames; `Ok` when the cache
/// has ended the stream without an error.
pub fn push(arguments: &PushArgs) -> Result<(), Failure> {
    let network = replicate::network(&arguments.cache)?;
    let runtime = runtime()?;
    let lines = replicate::pipe(network, &arguments.shard, arguments.resource.as_ref(), |frame| {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&frame.line()).and_then(|()| out.flush());
    });
    let ended = runtime.block_on(lines).map_err(Failure::Unavailable);
    // Standard input may still be waited for.
    runtime.shutdown_background();
    ended
}

/// Gives a shard's cells back to ordinary writers, and says which.
pub fn release(arguments: &ReleaseArgs) -> Result<(), Failure> {
    let path = release_path(arguments)?;
    let answer = runtime()?.block_on(async {
        let response = request(&arguments.data_dir, Method::POST, &path).await?;
        let code = response.status();
        let body = response.into_body().collect().await;
        let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if code == StatusCode::OK {
            return Ok(text);
        }
        Err(Failure::Unavailable(format!("the server refused the release: {}", reason(&text, code))))
    })?;
    let answer: Value = serde_json::from_slice(&answer)
        .map_err(|error| Failure::Unavailable(format!("the answer is not understood: {error}")))?;
    for released in answer["released"].as_array().into_iter().flatten() {
        let name = |field: &str| released[field].as_str().unwrap_or_default().to_owned();
        let qualified = [name("resource"), name("group")].join(".");
        let _ = writeln!(
            std::io::stdout(),
            "released {} of shard {}",
            qualified.trim_end_matches('.'),
            arguments.shard
        );
    }
    Ok(())
}

/// Path and query of a release; names are checked so that nothing needs to be escaped.
fn release_path(arguments: &ReleaseArgs) -> Result<String, Failure> {
    let shard = &arguments.shard;
    if !plain(shard) {
        return Err(Failure::usage(format!("--shard {shard:?}: is not the name of a shard")));
    }
    let Some(resource) = &arguments.resource else { return Ok(format!("{RELEASE_PATH}?shard={shard}")) };
    let parts: Vec<&str> = resource.split('/').collect();
    let (group, plural) = match parts.as_slice() {
        [group, version, plural] if [group, version, plural].iter().all(|part| plain(part)) => {
            (*group, *plural)
        }
        [version, plural] if plain(version) && plain(plural) => ("core", *plural),
        _ => {
            return Err(Failure::usage(format!(
                "--resource {resource:?}: expected GROUP/VERSION/PLURAL, such as apis.kcp.io/v1alpha2/apiexports"
            )));
        }
    };
    Ok(format!("{RELEASE_PATH}?shard={shard}&group={group}&resource={plural}"))
}

/// Whether a name can stand in a query as it is.
fn plain(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_');
    !text.is_empty() && text.bytes().all(legal)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Internal(format!("the runtime cannot be started: {error}")))
}

async fn request(data_dir: &Path, method: Method, path: &str) -> Result<Response<Incoming>, Failure> {
    let socket = socket_path(data_dir);
    let unreachable = |error: &dyn std::fmt::Display| {
        let socket = socket.display();
        Failure::Unavailable(format!(
            "{socket}: no server answers ({error}); is it running with this --data-dir?"
        ))
    };
    let stream = UnixStream::connect(&socket).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    // Ends with the response.
    let _connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::Internal(error.to_string()))?;
    sender.send_request(request).await.map_err(|error| unreachable(&error))
}

/// The JSON that the server answers.
async fn ask(data_dir: &Path, method: Method, path: &str) -> Result<Value, Failure> {
    let response = request(data_dir, method, path).await?;
    let code = response.status();
    let body = response.into_body().collect().await;
    let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if code != StatusCode::OK {
        return Err(Failure::Unavailable(format!("the server refused: {}", reason(&text, code))));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Failure::Unavailable(format!("the answer is not understood: {error}")))
}

/// Rows of a table in columns as wide as they need.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    text
}

async fn copy(response: Response<Incoming>, file: &mut File, output: &Path) -> Result<u64, Failure> {
    let code = response.status();
    let mut body = response.into_body();
    if code != StatusCode::OK {
        let text = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        return Err(Failure::Unavailable(format!("the server refused the backup: {}", reason(&text, code))));
    }
    let write_failure = |error| Failure::file("output", output, error);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Failure::Unavailable(format!("the backup was cut off: {error}")))?;
        if let Ok(chunk) = frame.into_data() {
            bytes += chunk.remaining() as u64;
            file.write_all(&chunk).map_err(write_failure)?;
        }
    }
    file.sync_all().map_err(write_failure)?;
    Ok(bytes)
}

/// The message of a `Status`, or what stands in for one.
fn reason(body: &[u8], code: StatusCode) -> String {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|status| status.get("message")?.as_str());
    message.map_or_else(|| code.to_string(), str::to_owned)
}
