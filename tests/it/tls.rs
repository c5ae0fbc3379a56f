//! TLS, certificates and tokens, end to end: who may do what over a real connection (D49–D52).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use shardcache::cli::Settings;
use tokio::net::TcpStream;

use crate::harness::Served;

/// An authority, and the files of a server that trusts it.
struct Pki {
    directory: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// What a client certificate says.
#[derive(Clone, Copy, Debug, Default)]
struct Subject {
    user: &'static str,
    groups: &'static [&'static str],
    uri: Option<&'static str>,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self { directory: tempfile::tempdir().expect("a directory"), authority }
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// A certificate and its key, as PEM.
    fn issue(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn client(&self, subject: Subject) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject.user);
        for group in subject.groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        if let Some(uri) = subject.uri {
            params.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
        }
        self.issue(&params)
    }

    fn settings(&self) -> Settings {
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]);
        let (cert, key) = self.issue(&server.expect("names"));
        Settings {
            tls_cert_file: Some(self.file("tls.crt", &cert)),
            tls_private_key_file: Some(self.file("tls.key", &key)),
            client_ca_file: Some(self.file("ca.crt", &self.authority.pem())),
            token_auth_file: Some(self.file("tokens.csv", "s3cret,jane,1,\"developers\"\n")),
            ..Settings::default()
        }
    }

    fn kube(&self, served: &Served, shard: &str, proof: Proof<'_>) -> Api<ClusterRole> {
        let cluster = if shard == "*" { "*" } else { "root" };
        let place = format!("{}/services/cache/shards/{shard}/clusters/{cluster}", served.url());
        let mut config = kube::Config::new(place.parse().expect("a URL"));
        config.root_cert = Some(vec![self.authority.der().to_vec()]);
        match proof {
            Proof::Nothing => {}
            Proof::Certificate(subject) => {
                use base64::Engine;
                let (cert, key) = self.client(subject);
                let encode = |pem: String| base64::engine::general_purpose::STANDARD.encode(pem);
                config.auth_info.client_certificate_data = Some(encode(cert));
                config.auth_info.client_key_data = Some(encode(key).into());
            }
            Proof::Token(token) => config.auth_info.token = Some(token.to_owned().into()),
        }
        Api::all(kube::Client::try_from(config).expect("a client"))
    }
}

#[derive(Clone, Copy, Debug)]
enum Proof<'a> {
    Nothing,
    Certificate(Subject),
    Token(&'a str),
}

/// The code of an answer; 200 if it is no error.
fn code<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("not an answer: {other:?}"),
    }
}

fn role(name: &str) -> ClusterRole {
    let mut role = ClusterRole::default();
    role.metadata.name = Some(name.to_owned());
    role
}

const AMBER: Subject =
    Subject { user: "system:cache:shard:amber", groups: &["system:cache:shards"], uri: None };
const AMBER_BY_URI: Subject =
    Subject { user: "workload", groups: &[], uri: Some("spiffe://corp/cache/shard/amber") };
const AMBER_WITHOUT_GROUP: Subject = Subject { user: "system:cache:shard:amber", groups: &[], uri: None };
const ADMIN: Subject = Subject { user: "root", groups: &["system:masters"], uri: None };
const READER: Subject = Subject { user: "controller", groups: &["developers"], uri: None };

#[tokio::test(flavor = "multi_thread")]
async fn d49_d50_who_may_write_where_over_tls() {
    let pki = Pki::new();
    let served = Served::with(pki.settings()).await;
    assert!(served.url().starts_with("https://"));
    for (proof, shard, write, read) in [
        (Proof::Certificate(AMBER), "amber", 200, 200),
        (Proof::Certificate(AMBER), "sapphire", 403, 200),
        (Proof::Certificate(AMBER_BY_URI), "amber", 200, 200),
        (Proof::Certificate(AMBER_BY_URI), "sapphire", 403, 200),
        (Proof::Certificate(AMBER_WITHOUT_GROUP), "amber", 403, 200),
        (Proof::Certificate(READER), "amber", 403, 200),
        (Proof::Certificate(ADMIN), "sapphire", 200, 200),
        (Proof::Token("s3cret"), "amber", 403, 200),
        (Proof::Token("wrong"), "amber", 401, 401),
        (Proof::Nothing, "amber", 401, 401),
        (Proof::Certificate(AMBER), "*", 403, 200),
    ] {
        let roles = pki.kube(&served, shard, proof);
        let what = format!("{proof:?} on {shard}");
        assert_eq!(code(roles.create(&PostParams::default(), &role("a")).await), write, "create: {what}");
        assert_eq!(code(roles.list(&ListParams::default()).await), read, "list: {what}");
        // A denial is the same whether there is something or not.
        let missing = code(roles.delete("missing", &DeleteParams::default()).await);
        assert_eq!(missing, if write == 200 { 404 } else { write }, "delete: {what}");
        if write == 200 {
            assert_eq!(code(roles.delete("a", &DeleteParams::default()).await), 200, "delete: {what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_refused_at_the_handshake() {
    let (pki, other) = (Pki::new(), Pki::new());
    let served = Served::with(pki.settings()).await;
    let (cert, key) = other.client(ADMIN);
    let config = tls_client(&pki, Some((&cert, &key)), &[b"http/1.1"]);
    assert!(handshake(&served, config).await.is_err(), "a stranger's certificate was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_http_are_offered_by_alpn() {
    let pki = Pki::new();
    let served = Served::with(pki.settings()).await;
    for (offered, chosen) in [
        (&[b"h2".as_slice(), b"http/1.1"][..], Some(b"h2".as_slice())),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let protocol = handshake(&served, tls_client(&pki, None, offered)).await.expect("a handshake");
        assert_eq!(protocol.as_deref(), chosen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_authentication_configured_nobody_is_anonymous_on_loopback_either() {
    let pki = Pki::new();
    let settings = Settings { token_auth_file: pki.settings().token_auth_file, ..Settings::default() };
    let served = Served::with(settings).await;
    assert!(served.url().starts_with("http://"));
    assert_eq!(code(pki.kube(&served, "amber", Proof::Nothing).list(&ListParams::default()).await), 401);
    assert_eq!(
        code(pki.kube(&served, "amber", Proof::Token("s3cret")).list(&ListParams::default()).await),
        200
    );
    // Probes have no credentials.
    assert_eq!(served.wire().get("/readyz").await.status, 200);
    assert_eq!(served.wire().get("/livez").await.status, 200);
}

fn tls_client(pki: &Pki, identity: Option<(&str, &str)>, alpn: &[&[u8]]) -> ClientConfig {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let mut roots = RootCertStore::empty();
    roots.add(pki.authority.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// The protocol that was chosen, once the server has accepted everything: in TLS 1.3 it refuses a client's
/// certificate only after the client's side of the handshake is done.
async fn handshake(served: &Served, config: ClientConfig) -> std::io::Result<Option<Vec<u8>>> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address: SocketAddr = served.url().trim_start_matches("https://").parse().expect("an address");
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    if protocol.as_deref() == Some(b"h2") {
        return Ok(protocol);
    }
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(protocol)
}

/// A file that only its owner may use is the whole of the admin socket's protection.
#[tokio::test]
async fn d52_the_admin_socket_and_the_kubeconfig_are_their_owners_only() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let served = Served::start().await;
    let metadata = |path: &Path| std::fs::metadata(path).expect("it is there");
    let socket = metadata(&served.data_dir().join("admin.sock"));
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata(&served.data_dir().join("kubeconfig")).permissions().mode() & 0o777, 0o600);
    // Over the port nobody administers without proof.
    assert_eq!(served.wire().get("/services/cache/admin/backup").await.status, 401);
}
