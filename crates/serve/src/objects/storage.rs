//! Object storage: the connection to a bucket, and the checks that the bucket works.
//!
//! Invariant: requests have timeouts and few retries. Errors name the address, and never contain
//! credentials or the text of a response beyond its code and message.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreExt as _, RetryConfig,
};
use tokio::sync::Mutex;

use super::error::{ObjectAction, ObjectsError, ObjectsFault};
use super::url::ObjectsUrl;
use crate::database::make_directory;

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time until the next bytes of a response. A request with a part is sent in this time,
/// too.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of retries of a request, and the time after which none is started.
const MAX_RETRIES: usize = 3;
const MAX_RETRY_TIME: Duration = Duration::from_secs(15);

/// Maximum time of the check at startup.
const MAX_CHECK_TIME: Duration = Duration::from_secs(20);

/// Maximum time of a probe of a running server.
const MAX_PROBE_TIME: Duration = Duration::from_secs(5);

/// How long the result of a probe is cached.
const PROBE_CACHE_TIME: Duration = Duration::from_secs(10);

/// The endpoint of a folder, for errors.
const MOUNTED: &str = "this machine";

/// Folder of the probe objects, and their content.
const PROBES: &str = "probe";
const PROBE: &str = "pkgtool checks that it can write and read here\n";

/// A connection to a bucket.
#[derive(Debug)]
pub struct ObjectStorage {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same bucket without credentials; `None` for a folder.
    anonymous: Option<PrefixStore<AmazonS3>>,
    url: ObjectsUrl,
    endpoint: String,
    has_credentials: bool,
    last_probe: Mutex<Option<(Instant, Result<(), ObjectsError>)>>,
}

impl ObjectStorage {
    /// Prepares a connection with the settings of the environment variables `AWS_*`. Nothing is
    /// sent.
    pub fn new(
        url: &ObjectsUrl,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ObjectsError> {
        match url {
            ObjectsUrl::Folder(folder) => Self::in_folder(url, folder),
            ObjectsUrl::Bucket { bucket, prefix } => {
                let builder = configured(bucket, variables);
                Self::in_bucket(url, prefix, builder)
            }
        }
    }

    /// Prepares the use of a folder that all servers mount.
    fn in_folder(url: &ObjectsUrl, folder: &Path) -> Result<Self, ObjectsError> {
        let fault = |reason: String| ObjectsError::new(url, MOUNTED, ObjectsFault::Folder(reason));
        make_directory(folder).map_err(|error| fault(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(folder);
        let store = store.map_err(|error| fault(error.to_string()))?;
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            anonymous: None,
            url: url.clone(),
            endpoint: MOUNTED.to_owned(),
            has_credentials: true,
            last_probe: Mutex::default(),
        })
    }

    fn in_bucket(
        url: &ObjectsUrl,
        prefix: &Name,
        builder: AmazonS3Builder,
    ) -> Result<Self, ObjectsError> {
        let value = |key| builder.get_config_value(&key);
        let endpoint = value(AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| value(AmazonS3ConfigKey::Endpoint))
            .unwrap_or_else(|| "Amazon S3".to_owned());
        let is_plain = endpoint.starts_with("http://");
        let allow_http = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
        let has_credentials = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ];
        let has_credentials = has_credentials.into_iter().any(|key| value(key).is_some());
        let fault = |fault| ObjectsError::new(url, &endpoint, fault);
        if is_plain && value(allow_http).is_none_or(|text| text == "false") {
            return Err(fault(ObjectsFault::PlainHttp));
        }
        // No other provider of TLS may be installed before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let build = |builder: AmazonS3Builder| {
            let built = builder.build();
            let built = built.map_err(|error| fault(ObjectsFault::settings(&error)))?;
            Ok(PrefixStore::new(built, prefix.clone()))
        };
        let anonymous = builder.clone().with_skip_signature(true);
        Ok(Self {
            store: Arc::new(build(builder)?),
            anonymous: Some(build(anonymous)?),
            url: url.clone(),
            endpoint,
            has_credentials,
            last_probe: Mutex::default(),
        })
    }

    /// Returns the objects below the prefix.
    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Returns the address of the bucket and the prefix.
    pub fn url(&self) -> &ObjectsUrl {
        &self.url
    }

    /// Checks that objects can be written, read, listed and deleted, and that the public cannot
    /// read them.
    pub async fn check(&self, allow_public: bool) -> Result<(), ObjectsError> {
        let check = self.probe(!allow_public);
        self.in_time(MAX_CHECK_TIME, check).await
    }

    /// Returns an error if the storage does not work now. The result is cached.
    pub async fn health(&self) -> Result<(), ObjectsError> {
        let mut last = self.last_probe.lock().await;
        if let Some((_, found)) = last.as_ref().filter(|it| it.0.elapsed() < PROBE_CACHE_TIME) {
            return found.clone();
        }
        let found = self.in_time(MAX_PROBE_TIME, self.probe(false)).await;
        *last = Some((Instant::now(), found.clone()));
        found
    }

    /// Writes, reads, lists and deletes an object of its own.
    async fn probe(&self, is_private: bool) -> Result<(), ObjectsError> {
        let id = uuid::Uuid::now_v7();
        let name = Name::from(format!("{PROBES}/{id}"));
        let put = self.store.put(&name, PROBE.into()).await;
        put.map_err(|error| self.failed(ObjectAction::Write, &error))?;
        let checked = async {
            let read = async { self.store.get(&name).await?.bytes().await };
            let read = read.await;
            let read = read.map_err(|error| self.failed(ObjectAction::Read, &error))?;
            if read != PROBE {
                return Err(self.error(ObjectsFault::Altered));
            }
            let folder = Name::from(PROBES);
            let listed = self.store.list(Some(&folder)).try_next().await;
            listed.map_err(|error| self.failed(ObjectAction::List, &error))?;
            if is_private
                && let Some(anonymous) = &self.anonymous
                && anonymous.get(&name).await.is_ok()
            {
                return Err(self.error(ObjectsFault::Public));
            }
            Ok(())
        };
        let checked = checked.await;
        let deleted = self.store.delete(&name).await;
        checked?;
        deleted.map_err(|error| self.failed(ObjectAction::Delete, &error))
    }

    async fn in_time(
        &self,
        limit: Duration,
        probe: impl Future<Output = Result<(), ObjectsError>>,
    ) -> Result<(), ObjectsError> {
        let checked = tokio::time::timeout(limit, probe).await;
        checked.unwrap_or_else(|_| {
            Err(self.error(ObjectsFault::Slow {
                limit,
                has_credentials: self.has_credentials,
            }))
        })
    }

    /// Returns the error of a failed action.
    pub(super) fn failed(&self, action: ObjectAction, error: &object_store::Error) -> ObjectsError {
        self.error(ObjectsFault::of(action, error, self.has_credentials))
    }

    pub(super) fn error(&self, fault: ObjectsFault) -> ObjectsError {
        ObjectsError::new(&self.url, &self.endpoint, fault)
    }
}

/// Returns the settings of a connection: defaults, which the environment overrides.
fn configured(bucket: &str, variables: impl Iterator<Item = (String, String)>) -> AmazonS3Builder {
    let options = ClientOptions::new()
        // A file may be read as slowly as its reader wants.
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT);
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: MAX_RETRIES,
        retry_timeout: MAX_RETRY_TIME,
    };
    let mut builder = AmazonS3Builder::new()
        .with_client_options(options)
        .with_retry(retry);
    for (name, value) in variables.filter(|(name, _)| name.starts_with("AWS_")) {
        // Other programs have variables with this prefix, too.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    builder.with_bucket_name(bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(variables: &[(&str, &str)]) -> Result<ObjectStorage, ObjectsError> {
        let url = "s3://bucket/prefix".parse().expect("it is one");
        let variables = variables.iter();
        ObjectStorage::new(
            &url,
            variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn the_environment_sets_the_endpoint_and_overrides_timeouts() {
        let plain = [("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")];
        let error = prepared(&plain).expect_err("it is not encrypted");
        let text = error.to_string();
        assert!(text.contains("AWS_ALLOW_HTTP=true"), "{text}");
        assert!(
            text.starts_with("s3://bucket/prefix at http://127.0.0.1:9000"),
            "{text}"
        );
        let allowed = [plain[0], ("AWS_ALLOW_HTTP", "true")];
        let storage = prepared(&allowed).expect("it is allowed");
        assert!(!storage.has_credentials);
        let with_key = [
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "topsecret"),
            ("AWS_PAGER", "less"),
        ];
        let storage = prepared(&with_key).expect("it is right");
        assert!(storage.has_credentials);
        assert!(!format!("{storage:?}").contains("topsecret"));
        let variables = [("AWS_TIMEOUT", "7s"), ("AWS_BUCKET", "other")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let builder = configured("bucket", variables.into_iter());
        let value = |key| builder.get_config_value(&key);
        let timeout = value(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout));
        assert_eq!(timeout.as_deref(), Some("7s"));
        assert_eq!(value(AmazonS3ConfigKey::Bucket).as_deref(), Some("bucket"));
    }
}
