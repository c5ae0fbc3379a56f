//! Objects written over REST, and the version of a list.

use std::net::SocketAddr;
use std::ops::Range;

use futures::future::try_join_all;

use super::client::Client;
use super::objects::{OBJECT_BYTES, object};
use super::verdict::Refusal;

/// Connections that fill a store.
pub(crate) const SEEDERS: usize = 64;

/// Creates objects of 2 KiB by 64 writers at once; `owners` makes a label of the number.
pub(crate) async fn seed(
    address: SocketAddr,
    path: &str,
    numbers: Range<usize>,
    owners: usize,
) -> Result<(), Refusal> {
    try_join_all((0..SEEDERS).map(async |seeder| {
        let mut client = Client::connect(address).await?;
        for number in (numbers.start + seeder..numbers.end).step_by(SEEDERS) {
            post(&mut client, path, &seeded(number, owners)).await?;
        }
        Ok::<_, Refusal>(())
    }))
    .await
    .map(drop)
}

/// The object of this number.
pub(crate) fn seeded(number: usize, owners: usize) -> Vec<u8> {
    object(&format!("export-{number}"), number, &(number % owners).to_string(), OBJECT_BYTES)
}

/// Creates an object; anything but 201 is an error.
pub(crate) async fn post(client: &mut Client, path: &str, body: &[u8]) -> Result<(), Refusal> {
    match client.send("POST", path, body).await?.code {
        201 => Ok(()),
        code => Err(Refusal::Client(std::io::Error::other(format!("POST {path}: {code}")))),
    }
}

/// The version of a list.
pub(crate) fn version_of(list: &[u8]) -> Result<String, Refusal> {
    #[derive(serde::Deserialize)]
    struct List {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let list: List = serde_json::from_slice(list).map_err(std::io::Error::from)?;
    Ok(list.metadata.resource_version)
}
