//! Settings of TLS by the names of CONFIG SET, and the certificates in the files that they name.

use crate::files::read_whole;
use karstdb::io::{Env, FileSystem};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

const CERT_FILE: &str = "tls-cert-file";
const KEY_FILE: &str = "tls-key-file";
const CA_CERT_FILE: &str = "tls-ca-cert-file";
const AUTH_CLIENTS: &str = "tls-auth-clients";
const PROTOCOLS: &str = "tls-protocols";

/// Versions by their names in `tls-protocols`.
const VERSIONS: [(&str, &SupportedProtocolVersion); 2] =
    [("TLSv1.2", &version::TLS12), ("TLSv1.3", &version::TLS13)];

/// Certificates that clients present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientCertificates {
    /// Each client has a valid one.
    Required,
    /// No client is asked for one.
    Unasked,
    /// A client has a valid one or none.
    Optional,
}

impl ClientCertificates {
    const ALL: [Self; 3] = [Self::Required, Self::Unasked, Self::Optional];

    /// Its name in `tls-auth-clients`.
    fn name(self) -> &'static str {
        match self {
            Self::Required => "yes",
            Self::Unasked => "no",
            Self::Optional => "optional",
        }
    }
}

/// Settings of TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    /// Names of files; empty: none.
    cert_file: String,
    key_file: String,
    ca_cert_file: String,
    auth_clients: ClientCertificates,
    /// Names of versions; empty: all.
    protocols: String,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            cert_file: String::new(),
            key_file: String::new(),
            ca_cert_file: String::new(),
            auth_clients: ClientCertificates::Required,
            protocols: String::new(),
        }
    }
}

impl TlsSettings {
    /// True if there is a setting of this name.
    pub(crate) fn has(name: &str) -> bool {
        [CERT_FILE, KEY_FILE, CA_CERT_FILE, AUTH_CLIENTS, PROTOCOLS].contains(&name)
    }

    /// All names with their values.
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        let auth_clients = self.auth_clients.name().to_owned();
        vec![
            (CERT_FILE, self.cert_file.clone()),
            (KEY_FILE, self.key_file.clone()),
            (CA_CERT_FILE, self.ca_cert_file.clone()),
            (AUTH_CLIENTS, auth_clients),
            (PROTOCOLS, self.protocols.clone()),
        ]
    }

    /// Sets one by its name. Reads no file.
    ///
    /// # Errors
    /// The reason that the value is refused, or `None` for an unknown setting. Nothing has changed.
    pub(crate) fn assign(&mut self, name: &str, value: &[u8]) -> Result<(), Option<&'static str>> {
        let text = std::str::from_utf8(value).map_err(|_| Some("argument must be UTF-8"));
        match name {
            CERT_FILE => text?.clone_into(&mut self.cert_file),
            KEY_FILE => text?.clone_into(&mut self.key_file),
            CA_CERT_FILE => text?.clone_into(&mut self.ca_cert_file),
            AUTH_CLIENTS => {
                let text = text?;
                let chosen =
                    ClientCertificates::ALL.into_iter().find(|of| of.name().eq_ignore_ascii_case(text));
                let wrong = "argument(s) must be one of the following: yes, no, optional";
                self.auth_clients = chosen.ok_or(Some(wrong))?;
            }
            PROTOCOLS => {
                let text = text?;
                let wrong = "argument(s) must be one or both of the following: TLSv1.2, TLSv1.3";
                versions(text).ok_or(Some(wrong))?;
                text.clone_into(&mut self.protocols);
            }
            _ => return Err(None),
        }
        Ok(())
    }

    /// Reads the files, for connections that are accepted from now on. Blocks no thread.
    ///
    /// # Errors
    /// A file is not set, cannot be read, or has nothing that is of use. The text begins with the
    /// name of the setting.
    pub(crate) async fn load(&self, env: &Env) -> Result<Arc<ServerConfig>, String> {
        let settings = self.clone();
        env.run_blocking(move |env| settings.load_now(env)).await.map(Arc::new)
    }

    /// [`load`](Self::load), which blocks.
    fn load_now(&self, env: &Env) -> Result<ServerConfig, String> {
        let files = &**env.fs();
        let chain = certificates(CERT_FILE, &self.cert_file, files)?;
        let key = read(KEY_FILE, &self.key_file, files)?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
            wrong(KEY_FILE, &self.key_file, "it has no private key in PEM that is not encrypted")
        })?;
        let provider = Arc::new(ring::default_provider());
        let versions = versions(&self.protocols).unwrap_or_else(|| VERSIONS.map(|(_, known)| known).to_vec());
        let config = ServerConfig::builder_with_details(provider.clone(), Arc::new(EnvTime(env.clone())))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("{PROTOCOLS}: {error}"))?;
        let config = match self.auth_clients {
            ClientCertificates::Unasked => config.with_no_client_auth(),
            asked => {
                let roots = self.roots(files)?;
                let of_clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let of_clients = match asked {
                    ClientCertificates::Optional => of_clients.allow_unauthenticated(),
                    _ => of_clients,
                };
                let of_clients = of_clients.build();
                config.with_client_cert_verifier(
                    of_clients.map_err(|error| wrong(CA_CERT_FILE, &self.ca_cert_file, error))?,
                )
            }
        };
        config.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                wrong(KEY_FILE, &self.key_file, format_args!("it is not the key of {}", self.cert_file))
            }
            error => wrong(CERT_FILE, &self.cert_file, error),
        })
    }

    /// The authorities whose certificates clients may have.
    fn roots(&self, files: &dyn FileSystem) -> Result<RootCertStore, String> {
        if self.ca_cert_file.is_empty() {
            let asked = self.auth_clients.name();
            return Err(format!(
                "{CA_CERT_FILE} is not set: {AUTH_CLIENTS} is '{asked}', so it names the authorities of \
                 clients' certificates; with {AUTH_CLIENTS} 'no' clients need none"
            ));
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates(CA_CERT_FILE, &self.ca_cert_file, files)? {
            roots.add(certificate).map_err(|error| wrong(CA_CERT_FILE, &self.ca_cert_file, error))?;
        }
        Ok(roots)
    }
}

/// The versions of these names, all for no name; `None`: there is another name.
fn versions(text: &str) -> Option<Vec<&'static SupportedProtocolVersion>> {
    let known = |name: &str| VERSIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let found: Option<Vec<_>> = text.split_ascii_whitespace().map(|name| Some(known(name)?.1)).collect();
    found.map(|found| if found.is_empty() { VERSIONS.map(|(_, known)| known).to_vec() } else { found })
}

/// Reads the file of a setting.
fn read(setting: &str, file: &str, files: &dyn FileSystem) -> Result<Vec<u8>, String> {
    if file.is_empty() {
        return Err(format!("{setting} is not set: TLS needs {CERT_FILE} and {KEY_FILE}"));
    }
    read_whole(files, Path::new(file)).map_err(|error| wrong(setting, file, error))
}

/// Reads the certificates in PEM of a file, one at least.
fn certificates(
    setting: &str,
    file: &str,
    files: &dyn FileSystem,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(setting, file, files)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong(setting, file, "it has no certificate in PEM")),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(setting, file, error)),
    }
}

fn wrong(setting: &str, file: &str, why: impl Display) -> String {
    format!("{setting} {file}: {why}")
}

/// The environment's clock, by which certificates are valid.
#[derive(Debug)]
struct EnvTime(Env);

impl TimeProvider for EnvTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.unix_time()))
    }
}
