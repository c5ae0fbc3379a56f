//! TLS from PEM files: the server's certificate, and the authorities of its clients.
//!
//! The provider (ring) is named here and nowhere else: with two providers in one process, rustls' default
//! builders panic.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::cli::Settings;
use crate::failure::Failure;

/// TLS as it is served.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// What rustls needs.
    pub rustls: Arc<ServerConfig>,
    /// Where the certificate came from: what clients on this host are told to trust.
    pub cert_file: PathBuf,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the files of the TLS flags; `None` if TLS is not asked for.
pub(super) fn load(settings: &Settings) -> Result<Option<TlsConfig>, Failure> {
    let (cert, key) = match (&settings.tls_cert_file, &settings.tls_private_key_file) {
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return Err(Failure::usage("--tls-cert-file needs --tls-private-key-file")),
        (None, Some(_)) => return Err(Failure::usage("--tls-private-key-file needs --tls-cert-file")),
        (None, None) if settings.client_ca_file.is_some() => {
            return Err(Failure::usage("--client-ca-file needs --tls-cert-file and --tls-private-key-file"));
        }
        (None, None) => return Ok(None),
    };
    let chain = certificates("tls-cert-file", cert)?;
    let private_key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| Failure::file("tls-private-key-file", key, error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::Internal(error.to_string()))?;
    let builder = match &settings.client_ca_file {
        Some(path) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider())
                // Whoever has no certificate may still bring a token.
                .allow_unauthenticated()
                .build()
                .map_err(|error| Failure::file("client-ca-file", path, error))?,
        ),
        None => builder.with_no_client_auth(),
    };
    let mut rustls = builder
        .with_single_cert(chain, private_key)
        .map_err(|error| Failure::file("tls-private-key-file", key, error))?;
    rustls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsConfig { rustls: Arc::new(rustls), cert_file: cert.clone() }))
}

/// TLS as a client speaks it to a cache, HTTP/2 only; `identity` is a certificate chain and its key.
pub(crate) fn client(
    ca: Option<&Path>,
    identity: Option<&(PathBuf, PathBuf)>,
) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let trusted = match ca {
        Some(path) => certificates("cache-ca-file", path).map_err(|failure| failure.line())?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    for certificate in trusted {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates("cache-client-cert-file", cert).map_err(|failure| failure.line())?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| Failure::file("cache-client-key-file", key, error).line())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| Failure::file(flag, path, error))?;
    if chain.is_empty() {
        return Err(Failure::file(flag, path, "no certificate in it"));
    }
    Ok(chain)
}

fn authorities(path: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client-ca-file", path)? {
        roots.add(certificate).map_err(|error| Failure::file("client-ca-file", path, error))?;
    }
    Ok(roots)
}
