//! TLS: the certificate for new connections, which can be replaced while the server runs.
//!
//! Invariant: a new certificate is used only if it was read completely and its key matches. Until
//! then connections get the previous one.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use super::Gateway;
use super::settings::GatewaySettings;
use super::settings::Tls as Files;

/// How often the files are checked for changes. They are small and compared by content, so every
/// way of replacing them is detected.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Name of HTTP/2 in TLS' protocol negotiation (ALPN).
pub(super) const HTTP2: &[u8] = b"h2";

/// The certificate or key is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// Certificate and key. Clones share them.
#[derive(Clone)]
pub struct ServerCertificate {
    pub(super) acceptor: TlsAcceptor,
    current: Arc<CurrentCertificate>,
}

/// The certificate for new connections.
struct CurrentCertificate {
    key: ArcSwap<CertifiedKey>,
    provider: Arc<CryptoProvider>,
    /// Digest of the files from which `key` was loaded.
    digest: Mutex<[u8; 32]>,
}

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is a secret.
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.load_full())
    }
}

impl ServerCertificate {
    /// Loads the files that the settings name; returns `None` if TLS is not configured.
    pub fn read(settings: &GatewaySettings) -> Result<Option<Self>, TlsError> {
        let files = &settings.tls;
        if files.certificate.as_os_str().is_empty() {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let contents = CertificateFiles::read(files)?;
        let current = Arc::new(CurrentCertificate {
            key: ArcSwap::from_pointee(contents.parse(files, &provider)?),
            provider: Arc::clone(&provider),
            digest: Mutex::new(contents.digest()),
        });
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(&files.certificate, error.to_string()))?;
        let mut config = config
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            current,
        }))
    }

    /// Reads the files again; returns `true` if they changed. After an error the previous
    /// certificate stays in use.
    pub fn renew(&self, files: &Files) -> Result<bool, TlsError> {
        let contents = CertificateFiles::read(files)?;
        let digest = contents.digest();
        let known = &self.current.digest;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == digest {
            return Ok(false);
        }
        let parsed = contents.parse(files, &self.current.provider)?;
        self.current.key.store(Arc::new(parsed));
        *known = digest;
        Ok(true)
    }

    /// Reads the files again and logs a change.
    pub fn renew_now(&self, settings: &GatewaySettings) -> Result<(), TlsError> {
        if self.renew(&settings.tls)? {
            log_renewed(&settings.tls);
        }
        Ok(())
    }

    /// Replaces the certificate whenever the configured files change. Never returns.
    pub async fn follow(self, gateway: Arc<Gateway>) {
        let (mut failed, mut told) = (None, None);
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let (tls, files) = (self.clone(), gateway.current().tls.clone());
            let renewed = tokio::task::spawn_blocking(move || tls.renew(&files)).await;
            match renewed {
                Ok(Ok(renewed)) => {
                    (failed, told) = (None, None);
                    if renewed {
                        log_renewed(&gateway.current().tls);
                    }
                }
                Ok(Err(error)) => {
                    // Certificate and key are replaced one after the other. An error is logged only
                    // if it persists, and only once.
                    let error = Some(error.to_string());
                    if error == failed && error != told {
                        let error = error.clone().unwrap_or_default();
                        tracing::warn!(
                            error,
                            "certificate reload failed: the previous certificate stays in use"
                        );
                        told.clone_from(&failed);
                    }
                    failed = error;
                }
                Err(error) => tracing::error!(%error, "reading the certificate failed"),
            }
        }
    }
}

/// Logs that new connections get another certificate.
fn log_renewed(files: &Files) {
    let certificate = files.certificate.display();
    tracing::info!(%certificate, "certificate reloaded");
}

/// The contents of the two files.
struct CertificateFiles {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateFiles {
    fn read(files: &Files) -> Result<Self, TlsError> {
        let read = |path: &Path| fs::read(path).map_err(|error| fault(path, error.to_string()));
        Ok(Self {
            chain: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update((self.chain.len() as u64).to_be_bytes());
        digest.update(&self.chain);
        digest.update(&self.key);
        digest.finalize().into()
    }

    fn parse(&self, files: &Files, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let (certificate, key) = (&files.certificate, &files.key);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.chain).collect();
        let chain = chain.map_err(|error| fault(certificate, format!("invalid PEM: {error}")))?;
        if chain.is_empty() {
            return Err(fault(certificate, "missing certificate".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| fault(key, format!("invalid private key: {error}")))?;
        CertifiedKey::from_der(chain, private, provider)
            .map_err(|error| fault(certificate, error.to_string()))
    }
}

fn fault(path: &Path, reason: String) -> TlsError {
    TlsError {
        path: path.to_owned(),
        reason,
    }
}
