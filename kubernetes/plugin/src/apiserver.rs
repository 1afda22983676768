//! Calls of the apiserver: JSON by HTTP, a connection for each call, by TLS with the cluster's own root.
//!
//! There are few: at the start, when devices change, and when a claim is prepared.

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a watch lasts; the apiserver ends it then.
const WATCH: Duration = Duration::from_secs(300);
/// Most bytes of an answer.
const MOST: usize = 16 << 20;
/// Bytes of one that says no.
const MOST_OF_REFUSAL: usize = 64 << 10;

/// Where the apiserver is, and what to show it.
#[derive(Debug, Clone)]
pub struct ApiServer {
    host: String,
    port: u16,
    /// `None` without TLS.
    secrets: Option<Secrets>,
}

/// Files that a pod with a service account has. They change while it runs.
#[derive(Debug, Clone)]
struct Secrets {
    root: PathBuf,
    token: PathBuf,
}

/// Why there is no answer, or another than was expected.
#[derive(Debug)]
pub enum ApiError {
    /// No answer.
    Silent(String),
    /// The thing is not there, in the apiserver's own words.
    Missing(String),
    /// An answer that says no.
    Refused(StatusCode, String),
    /// An answer that is none.
    Nonsense(String),
}

impl ApiError {
    /// Whether another changed, made or removed the thing meanwhile.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        matches!(
            self,
            Self::Missing(_) | Self::Refused(StatusCode::CONFLICT | StatusCode::NOT_FOUND, _)
        )
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => write!(f, "the apiserver does not answer: {why}"),
            Self::Missing(why) => write!(f, "the apiserver says: {why}"),
            Self::Refused(code, why) => write!(f, "the apiserver refuses with {code}: {why}"),
            Self::Nonsense(why) => write!(f, "what the apiserver answers is not understood: {why}"),
        }
    }
}

impl std::error::Error for ApiError {}

fn silent(why: impl fmt::Display) -> ApiError {
    ApiError::Silent(why.to_string())
}

/// A connection's task, which ends with the value.
struct Talk(JoinHandle<()>);

impl Drop for Talk {
    fn drop(&mut self) {
        self.0.abort();
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl ApiServer {
    /// The one at this address: `https://host:port`, with the root certificate and the token of these files, or
    /// `http://` on this machine, where `kubectl proxy` shows a token of its own.
    ///
    /// ```
    /// use firstlight_kubernetes::apiserver::ApiServer;
    /// use std::path::Path;
    /// let folder = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
    /// assert!(ApiServer::at("https://10.7.0.1:443", folder).is_ok());
    /// assert!(ApiServer::at("https://[fd00::1]:443", folder).is_ok());
    /// assert!(ApiServer::at("http://127.0.0.1:8001", folder).is_ok());
    /// assert!(ApiServer::at("http://10.7.0.1:80", folder).is_err());
    /// ```
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn at(address: &str, folder: &Path) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{address:?} is no address of an apiserver: {why}, expected https://HOST:PORT")
        };
        let (scheme, rest) = address.split_once("://").ok_or(wrong("no scheme"))?;
        let (host, port) = rest
            .trim_end_matches('/')
            .rsplit_once(':')
            .ok_or(wrong("no port"))?;
        let port = port.parse().map_err(|_| wrong("its port is no number"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let secrets = match scheme {
            "https" => Some(Secrets {
                root: folder.join("ca.crt"),
                token: folder.join("token"),
            }),
            "http" if ["127.0.0.1", "::1", "localhost"].contains(&host) => None,
            "http" => return Err(wrong("without TLS it is on this machine only")),
            _ => return Err(wrong("neither https nor http")),
        };
        Ok(Self {
            host: host.into(),
            port,
            secrets,
        })
    }

    /// Something.
    ///
    /// # Errors
    /// Why it isn't known.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ApiError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Makes something in this collection.
    ///
    /// # Errors
    /// Why it isn't made.
    pub async fn create(&self, path: &str, thing: &impl Serialize) -> Result<(), ApiError> {
        let made: Result<Value, _> = self.call(Method::POST, path, Some(thing)).await;
        made.map(drop)
    }

    /// Puts something in the place of what is there.
    ///
    /// # Errors
    /// Why it isn't.
    pub async fn replace(&self, path: &str, thing: &impl Serialize) -> Result<(), ApiError> {
        let made: Result<Value, _> = self.call(Method::PUT, path, Some(thing)).await;
        made.map(drop)
    }

    /// Removes something.
    ///
    /// # Errors
    /// Why it isn't.
    pub async fn remove(&self, path: &str) -> Result<(), ApiError> {
        let removed: Result<Value, _> = self.call(Method::DELETE, path, None::<&()>).await;
        removed.map(drop)
    }

    /// Waits until something is not as it was when it had this version, or for some minutes.
    ///
    /// # Errors
    /// Why that isn't known.
    pub async fn changes(&self, path: &str, version: &str) -> Result<(), ApiError> {
        let seconds = WATCH.as_secs();
        let path = format!("{path}&watch=1&resourceVersion={version}&timeoutSeconds={seconds}");
        let waited = tokio::time::timeout(WATCH + PATIENCE, async {
            let (answer, _talk) = self.answer(Method::GET, &path, None::<&()>).await?;
            let mut body = whole_or(answer).await?;
            // The first bytes of the first event, or the end.
            body.frame().await.transpose().map_err(silent)
        });
        match waited.await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        thing: Option<&impl Serialize>,
    ) -> Result<A, ApiError> {
        let called = async {
            let (answer, _talk) = self.answer(method, path, thing).await?;
            let body = Limited::new(whole_or(answer).await?, MOST).collect();
            let bytes = body.await.map_err(silent)?.to_bytes();
            serde_json::from_slice(&bytes).map_err(|error| ApiError::Nonsense(error.to_string()))
        };
        let called = tokio::time::timeout(PATIENCE, called).await;
        called.unwrap_or_else(|_| Err(silent(format!("nothing comes for {PATIENCE:?}"))))
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        thing: Option<&impl Serialize>,
    ) -> Result<(http::Response<Incoming>, Talk), ApiError> {
        let connecting = tokio::time::timeout(PATIENCE, self.connect()).await;
        let stream = connecting
            .map_err(|_| silent(format!("no connection for {PATIENCE:?}")))?
            .map_err(|why| silent(format!("{} at port {}: {why}", self.host, self.port)))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(silent)?;
        let talk = Talk(tokio::spawn(async {
            // What is wrong with it the call hears.
            let _ = connection.await;
        }));
        let host = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let body = match thing {
            Some(thing) => serde_json::to_vec(thing).map_err(silent)?,
            None => Vec::new(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "firstlight-kubernetes");
        if thing.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(Secrets { token, .. }) = &self.secrets {
            let text = std::fs::read_to_string(token);
            let text = text.map_err(|error| silent(format!("{}: {error}", token.display())))?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", text.trim()));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(silent)?;
        let answer = sender.send_request(request).await.map_err(silent)?;
        Ok((answer, talk))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let place = (self.host.as_str(), self.port);
        let stream = TcpStream::connect(place).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some(Secrets { root, .. }) = &self.secrets else {
            return Ok(Box::new(stream));
        };
        let config = config(root)?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await;
        Ok(Box::new(stream.map_err(|error| error.to_string())?))
    }
}

/// TLS with servers that the certificates of a file vouch for, and with no other.
fn config(root: &Path) -> Result<ClientConfig, String> {
    let at = |why: String| format!("{}: {why}", root.display());
    let certificates = CertificateDer::pem_file_iter(root)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|error| at(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    let (used, _) = roots.add_parsable_certificates(certificates);
    if used == 0 {
        return Err(at("no certificate in it".into()));
    }
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The body of an answer that says yes, or what another says.
async fn whole_or(answer: http::Response<Incoming>) -> Result<Incoming, ApiError> {
    let (parts, body) = answer.into_parts();
    if parts.status.is_success() {
        return Ok(body);
    }
    let body = Limited::new(body, MOST_OF_REFUSAL).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    Err(refused(parts.status, &text.unwrap_or_default()))
}

/// What an answer that says no says. What is between may say 404 of anything, and an apiserver without the API of all in
/// it: of one thing it says so in a `Status` that names it.
fn refused(code: StatusCode, text: &str) -> ApiError {
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or(text);
    let message = message.chars().take(200).collect();
    let is_of_one = status["reason"] == "NotFound" && status["details"]["name"].is_string();
    if code == StatusCode::NOT_FOUND && status["kind"] == "Status" && is_of_one {
        return ApiError::Missing(message);
    }
    ApiError::Refused(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd::odd;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn a_refusal_of_any_shape_is_a_short_sentence(answer in odd(json!({
            "kind": "Status", "reason": "NotFound", "message": "no", "details": {"name": "vm"},
        })), text in ".*") {
            for text in [&answer.to_string(), &text] {
                for code in [StatusCode::NOT_FOUND, StatusCode::CONFLICT] {
                    prop_assert!(refused(code, text).to_string().chars().count() < 300);
                }
            }
        }
    }

    #[test]
    fn a_thing_is_missing_only_where_the_apiserver_says_so_of_it() {
        let not_found = json!({
            "kind": "Status", "reason": "NotFound", "message": "no such claim",
            "details": {"kind": "resourceclaims", "name": "vm"},
        });
        let text = not_found.to_string();
        assert!(
            matches!(refused(StatusCode::NOT_FOUND, &text), ApiError::Missing(why) if why == "no such claim")
        );
        let unserved = json!({"kind": "Status", "reason": "NotFound", "details": {}}).to_string();
        for text in [
            "404 page not found\n",
            "",
            "null",
            "[]",
            &unserved,
            &"x".repeat(5000),
        ] {
            let error = refused(StatusCode::NOT_FOUND, text);
            assert!(
                matches!(&error, ApiError::Refused(_, why) if why.len() <= 200),
                "{error}"
            );
        }
        assert!(matches!(
            refused(StatusCode::FORBIDDEN, &text),
            ApiError::Refused(..)
        ));
    }
}
