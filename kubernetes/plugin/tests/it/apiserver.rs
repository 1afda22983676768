//! An apiserver as far as the driver can tell: slices, claims, a node, events; by TLS where it is told to.

use crate::kit::until_async;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

#[derive(Default)]
struct Things {
    version: u64,
    slices: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    events: Vec<Value>,
    /// What showed each call who calls.
    tokens: Vec<String>,
    /// It answers every call so.
    refuses: Option<u16>,
    /// It lets none replace a slice.
    conflicts: bool,
}

#[derive(Clone)]
struct Known {
    things: Arc<Mutex<Things>>,
    changed: Arc<watch::Sender<u64>>,
    /// It answers nothing of claims.
    silent: Arc<watch::Sender<bool>>,
}

/// One, ended with the value.
pub(crate) struct Api {
    known: Known,
    pub(crate) address: String,
    serving: JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Makes a root certificate and one for 127.0.0.1, in a folder: `ca.crt`, `server.crt`, `server.key`.
pub(crate) fn certificates(folder: &Path) {
    let openssl = |words: &str| {
        let mut command = Command::new("openssl");
        let run = command.args(words.split(' ')).current_dir(folder).output();
        let run = run.expect("openssl, for certificates of a test");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
    };
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(&format!(
        "req -x509 {curve} -subj /CN=root -keyout ca.key -out ca.crt"
    ));
    openssl(&format!(
        "req {curve} -subj /CN=apiserver -keyout server.key -out server.csr"
    ));
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::serve(None).await
    }

    /// By TLS, with the certificate of a folder.
    pub(crate) async fn start_with_tls(folder: &Path) -> Self {
        let chain = vec![CertificateDer::from_pem_file(folder.join("server.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
        let provider = Arc::new(rustls_graviola::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        Self::serve(Some(TlsAcceptor::from(Arc::new(config.unwrap())))).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let known = Known {
            things: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            silent: Arc::default(),
        };
        let shared = known.clone();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, known) = (tls.clone(), shared.clone());
                tokio::spawn(async move {
                    let answer = service_fn(move |request| known.clone().answer(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that hangs up is no fault.
                    let _ = match tls {
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => http.serve_connection(TokioIo::new(stream), answer).await,
                            Err(_) => return,
                        },
                        None => http.serve_connection(TokioIo::new(stream), answer).await,
                    };
                });
            }
        });
        Self {
            known,
            address,
            serving,
        }
    }

    fn things(&self) -> MutexGuard<'_, Things> {
        self.known.things.lock().unwrap()
    }

    pub(crate) fn refuse(&self, code: Option<u16>) {
        self.things().refuses = code;
    }

    pub(crate) fn conflict(&self, conflicts: bool) {
        self.things().conflicts = conflicts;
    }

    /// Calls for claims wait from now on, or go on.
    pub(crate) fn keep_waiting(&self, wait: bool) {
        self.known.silent.send_replace(wait);
    }

    /// How many do.
    pub(crate) fn waiting(&self) -> usize {
        self.known.silent.receiver_count()
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.things().slices.values().cloned().collect()
    }

    /// Names of all devices in slices.
    pub(crate) fn devices(&self) -> Vec<String> {
        let slices = self.slices();
        let devices = slices
            .iter()
            .flat_map(|slice| slice["spec"]["devices"].as_array().unwrap());
        devices
            .map(|one| one["name"].as_str().unwrap().to_string())
            .collect()
    }

    pub(crate) async fn until_devices(&self, names: &[&str]) {
        until_async("devices in slices", async || self.devices() == names).await;
    }

    /// As kubelet does when it starts.
    pub(crate) fn remove_slices(&self) {
        self.things().slices.clear();
        self.known.change();
    }

    /// Another writes to a slice.
    pub(crate) fn spoil(&self, spoil: impl FnOnce(&mut Value)) {
        spoil(self.things().slices.values_mut().next().unwrap());
        self.known.change();
    }

    /// A claim in the name space `ns` has these devices of the pool of node1.
    pub(crate) fn allocate(&self, name: &str, uid: &str, devices: &[&str]) {
        let results: Vec<_> = devices
            .iter()
            .map(|device| {
                json!({"request": "memory", "driver": "pool.firstlight.dev", "pool": "node1", "device": device})
            })
            .collect();
        let claim = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        self.set_claim(name, Some(claim));
    }

    pub(crate) fn set_claim(&self, name: &str, claim: Option<Value>) {
        let mut things = self.things();
        match claim {
            Some(claim) => things.claims.insert(name.into(), claim),
            None => things.claims.remove(name),
        };
    }

    pub(crate) fn events(&self) -> Vec<String> {
        let things = self.things();
        let message = |event: &Value| event["message"].as_str().unwrap().to_string();
        things.events.iter().map(message).collect()
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.things().tokens.clone()
    }
}

type Answer = Result<Value, u16>;

impl Known {
    fn change(&self) {
        let mut things = self.things.lock().unwrap();
        things.version += 1;
        self.changed.send_replace(things.version);
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let thing = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let refuses = {
            let mut things = self.things.lock().unwrap();
            let token = parts.headers.get("authorization");
            let token = token.map_or("", |token| token.to_str().unwrap());
            things.tokens.push(token.into());
            things.refuses
        };
        if parts.uri.path().contains("/resourceclaims/") {
            let mut silent = self.silent.subscribe();
            let _ = silent.wait_for(|silent| !silent).await;
        }
        let answer = if let Some(code) = refuses {
            Err(code)
        } else if query.contains("watch=1") {
            self.watch(query).await
        } else {
            self.act(&parts.method, parts.uri.path(), thing)
        };
        let (code, value) = match answer {
            Ok(value) => (200, value),
            Err(code) => (
                code,
                json!({
                    "kind": "Status", "message": format!("the test says {code}"),
                    "reason": if refuses.is_none() && code == 404 { "NotFound" } else { "" },
                    "details": {"name": parts.uri.path()},
                }),
            ),
        };
        let response = Response::builder().status(code);
        Ok(response.body(Full::from(value.to_string() + "\n")).unwrap())
    }

    async fn watch(&self, query: &str) -> Answer {
        let version = query
            .split('&')
            .find_map(|word| word.strip_prefix("resourceVersion="));
        let version: u64 = version.unwrap().parse().unwrap();
        let mut changed = self.changed.subscribe();
        let waited = changed.wait_for(|now| *now > version);
        // A short one: watches end, and are begun again.
        let _ = tokio::time::timeout(Duration::from_secs(2), waited).await;
        Ok(json!({"type": "MODIFIED"}))
    }

    fn act(&self, method: &Method, path: &str, mut thing: Value) -> Answer {
        let answer = self.look_up(method, path);
        if let Some(answer) = answer {
            return answer;
        }
        let mut things = self.things.lock().unwrap();
        if path == "/api/v1/namespaces/default/events" {
            things.events.push(thing.clone());
            return Ok(thing);
        }
        let name = match path.strip_prefix(SLICES) {
            Some("") => format!("slice-{}", things.version),
            Some(name) => name[1..].to_string(),
            None => return Err(404),
        };
        let before = things
            .slices
            .get(&name)
            .map(|slice| slice["metadata"]["resourceVersion"].clone());
        match *method {
            Method::POST => {}
            Method::PUT if things.conflicts => return Err(409),
            Method::PUT if before.is_none() => return Err(404),
            Method::PUT if before != Some(thing["metadata"]["resourceVersion"].clone()) => {
                return Err(409);
            }
            Method::DELETE if before.is_none() => return Err(404),
            _ => {}
        }
        things.version += 1;
        if *method == Method::DELETE {
            things.slices.remove(&name);
        } else {
            thing["metadata"]["name"] = name.clone().into();
            thing["metadata"]["resourceVersion"] = things.version.to_string().into();
            things.slices.insert(name, thing.clone());
        }
        self.changed.send_replace(things.version);
        Ok(thing)
    }

    fn look_up(&self, method: &Method, path: &str) -> Option<Answer> {
        if *method != Method::GET {
            return None;
        }
        let things = self.things.lock().unwrap();
        if path == SLICES {
            let items: Vec<_> = things.slices.values().collect();
            let version = things.version.to_string();
            return Some(Ok(
                json!({"metadata": {"resourceVersion": version}, "items": items}),
            ));
        }
        if path == "/api/v1/nodes/node1" {
            return Some(Ok(
                json!({"metadata": {"name": "node1", "uid": "uid-of-node1"}}),
            ));
        }
        let name = path.strip_prefix("/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/")?;
        Some(things.claims.get(name).cloned().ok_or(404))
    }
}
