//! Where the next thing from the source comes from: requests under way, and open watches.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::sleep;

use super::pusher::Mirror;
use super::source::{Page, Source, SourceError, WATCH_TIME, WatchLines};

/// Something the source has been asked for.
pub(super) type Asked<T> = BoxFuture<'static, Result<T, SourceError>>;

/// Where the next thing from the source comes from.
pub(super) enum Feed {
    /// A request that is on its way: a page of a list, or the begin of a watch.
    Asked(Asked<Taken>),
    /// An open watch.
    Watch(Box<WatchLines>),
}

/// What came from the source.
pub(super) enum Taken {
    Page(Page),
    Line(Bytes),
    /// The watch has ended in order.
    Ended,
    /// What the source had at a version; `None` if it does not know any more.
    Mirror(Option<Mirror>),
    Began(Box<WatchLines>),
    /// A watch that begins with everything there is.
    ListBegan(Box<WatchLines>),
}

impl Feed {
    /// The next thing. Cancel safe.
    pub(super) async fn take(&mut self) -> Result<Taken, SourceError> {
        match self {
            Self::Asked(asked) => asked.await,
            Self::Watch(lines) => match lines.next().await {
                Ok(Some(line)) => Ok(Taken::Line(line.freeze())),
                Ok(None) => Ok(Taken::Ended),
                Err(error) => Err(SourceError::Failed(error.to_string())),
            },
        }
    }

    /// Everything there is: as a watch that begins with it, else in pages.
    pub(super) fn everything(source: &Source, pause: Duration) -> Self {
        let source = source.clone();
        Self::Asked(
            async move {
                sleep(pause).await;
                match source.watch_list().await? {
                    Some(lines) => Ok(Taken::ListBegan(Box::new(lines))),
                    None => source.page(None).await.map(Taken::Page),
                }
            }
            .boxed(),
        )
    }

    /// The next page of a list.
    pub(super) fn page(source: &Source, token: String) -> Self {
        let source = source.clone();
        Self::Asked(async move { source.page(Some(&token)).await.map(Taken::Page) }.boxed())
    }

    /// The events after a version.
    pub(super) fn watch(source: &Source, version: u64, pause: Duration) -> Self {
        let source = source.clone();
        let opened = async move {
            sleep(pause).await;
            source.watch(version, WATCH_TIME).await
        };
        Self::Asked(opened.map(|lines| Ok(Taken::Began(Box::new(lines?)))).boxed())
    }
}
