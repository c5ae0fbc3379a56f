//! The unix socket for administration: `<data-dir>/admin.sock`, mode 0600.
//!
//! Whoever may open it is the administrator (D52). It never exists with wider permissions: it is bound in a
//! directory that only we can enter, restricted, and then moved into place.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};
use tracing::warn;

use crate::failure::Failure;

/// Where the socket of a data directory is.
pub fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.sock")
}

/// Binds the socket in place of one that a dead server left. `None` if the path is too long for a socket
/// or the file system has none: the server works without it.
pub(super) async fn bind(data_dir: &Path) -> Result<Option<UnixListener>, Failure> {
    let path = socket_path(data_dir);
    if UnixStream::connect(&path).await.is_ok() {
        return Err(Failure::Store(format!(
            "{}: another server uses this data directory; stop it or name another --data-dir",
            data_dir.display()
        )));
    }
    match bind_privately(data_dir, &path) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => {
            warn!(path = %path.display(), %error, "the admin socket cannot be opened");
            Ok(None)
        }
    }
}

fn bind_privately(data_dir: &Path, path: &Path) -> std::io::Result<UnixListener> {
    let private = data_dir.join(".admin");
    if private.exists() {
        std::fs::remove_dir_all(&private)?;
    }
    std::fs::DirBuilder::new().mode(0o700).create(&private)?;
    let bound = private.join("s");
    let listener = UnixListener::bind(&bound)?;
    std::fs::set_permissions(&bound, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&bound, path)?;
    std::fs::remove_dir(&private)?;
    Ok(listener)
}

/// Removes the socket; nothing listens on it any more.
pub(super) fn remove(data_dir: &Path) {
    // Gone already, or never there: both are as wanted.
    let _ = std::fs::remove_file(socket_path(data_dir));
}
