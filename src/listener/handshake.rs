//! TLS handshakes, and whom a client certificate names.

use std::io;
use std::time::Duration;

use shardcache_proxy::access::{Access, Identity};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::TlsConfig;

/// Longest a client may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How connections become identities. Cheap to clone.
#[derive(Clone)]
pub(super) struct Handshake {
    acceptor: TlsAcceptor,
    /// What a client without a certificate may do.
    anonymous: Access,
}

impl Handshake {
    /// Handshakes for a listener.
    pub(super) fn new(tls: &TlsConfig, anonymous: Access) -> Self {
        Self { acceptor: TlsAcceptor::from(tls.rustls.clone()), anonymous }
    }

    /// One handshake.
    pub(super) async fn accept(self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Access)> {
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await??;
        let (_, session) = stream.get_ref();
        let access = match session.peer_certificates().and_then(|chain| chain.first()) {
            Some(certificate) => Access::of(&identity(certificate)?),
            None => self.anonymous,
        };
        Ok((stream, access))
    }
}

/// CN → user, O → groups, URI names as they are. The chain has been verified by then.
fn identity(certificate: &[u8]) -> io::Result<Identity> {
    let unreadable =
        |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| unreadable(&error))?;
    let subject = certificate.subject();
    // Several CNs would let the issuer and the reader disagree on who it is.
    let names: Vec<_> = subject.iter_common_name().filter_map(|name| name.as_str().ok()).collect();
    let user = match names.as_slice() {
        [one] => (*one).to_owned(),
        _ => String::new(),
    };
    let groups =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
    let alternatives = certificate.subject_alternative_name().map_err(|error| unreadable(&error))?;
    let uris = alternatives.map_or_else(Vec::new, |names| {
        let uri = |name: &GeneralName<'_>| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        };
        names.value.general_names.iter().filter_map(uri).collect()
    });
    Ok(Identity { user, groups, uris })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn a_certificate_names_user_groups_and_uris() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["host".to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "system:cache:shard:amber");
        params.distinguished_name.push(DnType::OrganizationName, "system:cache:shards");
        let uri = "spiffe://corp/cache/shard/amber";
        params.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
        let certificate = params.self_signed(&key).expect("a certificate");
        let named = identity(certificate.der()).expect("readable");
        assert_eq!(named.user, "system:cache:shard:amber");
        assert_eq!(named.groups, ["system:cache:shards"]);
        assert_eq!(named.uris, [uri]);
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(identity(b"not DER").is_err());
    }
}
