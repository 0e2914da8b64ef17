//! Certificates of TLS, and the client's end of connections with it.
//!
//! All keys are of Ed25519, whose certificates and signatures have fixed lengths: a handshake takes
//! the same number of bytes each time, so that a simulation of a seed stays the same.

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use std::sync::Arc;

/// Name that the servers' certificates are for.
const SERVER: &str = "server.test";

/// An authority that signs certificates.
pub struct Authority {
    /// Its own certificate, in PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, behind which others of its chain can be.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// Parameters of a certificate of a fixed length.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.serial_number = Some(vec![1].into());
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).expect("a key")
}

impl Authority {
    /// An authority of this name, with a key of its own.
    ///
    /// # Panics
    /// There is no randomness.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = new_key();
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate of a new key, which servers and clients can have.
    ///
    /// # Panics
    /// There is no randomness.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity_with(&[])
    }

    /// [`identity`](Self::identity) whose certificate is larger by these names.
    ///
    /// # Panics
    /// A name is not ASCII.
    #[must_use]
    pub fn identity_with(&self, names: &[String]) -> Identity {
        let mut params = params("someone");
        let names = names.iter().map(String::as_str).chain([SERVER]);
        let names = names.map(|name| SanType::DnsName(Ia5String::try_from(name).expect("ASCII")));
        params.subject_alt_names.extend(names);
        let key = new_key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// Options of a client that trusts this authority, with a certificate or without one, and with
    /// these versions; all for none.
    ///
    /// # Panics
    /// The certificate cannot be used.
    #[must_use]
    pub fn client(
        &self,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let versions = if versions.is_empty() { rustls::ALL_VERSIONS } else { versions };
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.certificate)).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions that there are")
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key in PEM");
                let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
                let chain = chain.map(|one| one.expect("a certificate in PEM")).collect();
                config.with_client_auth_cert(chain, key).expect("a certificate and its key")
            }
        })
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate in PEM")
}

/// A client's end of a connection to a server with an [`Authority::identity`].
///
/// # Panics
/// The options cannot be used.
#[must_use]
pub fn connection(config: Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config, ServerName::try_from(SERVER).expect("a name")).expect("a client")
}
