//! gRPC over Unix sockets, without generated code: a call by its path, and a server of calls by their paths.

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// A connection to the server that listens on `socket`, on which a call may take so long.
///
/// # Errors
/// Why there is none.
pub async fn connect(socket: &Path, patience: Duration) -> Result<Channel, Status> {
    let path = socket.to_owned();
    let connector = service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(patience);
    let connected = tokio::time::timeout(patience, endpoint.connect_with_connector(connector));
    let place = socket.display();
    match connected.await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(Status::unavailable(format!(
            "nothing answers at {place}: {}",
            cause(&error)
        ))),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "no answer at {place} for {patience:?}"
        ))),
    }
}

/// The last cause of an error, which says most.
fn cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => cause(source),
        None => error.to_string(),
    }
}

async fn ready(channel: Channel) -> Result<tonic::client::Grpc<Channel>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(cause(&error)))?;
    Ok(client)
}

/// Calls for one message with one message.
///
/// # Errors
/// What the server answers instead, or why there is no answer.
pub async fn call<Q, A>(channel: Channel, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = ready(channel).await?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = client.unary(Request::new(request), path, codec).await?;
    Ok(answer.into_inner())
}

/// Calls for a stream of messages with one message.
///
/// # Errors
/// What the server answers instead, or why there is no answer.
pub async fn watch<Q, A>(
    channel: Channel,
    path: &'static str,
    request: Q,
) -> Result<tonic::Streaming<A>, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = ready(channel).await?;
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Q, A>::default();
    let answer = client
        .server_streaming(Request::new(request), path, codec)
        .await?;
    Ok(answer.into_inner())
}

/// A call as it came, and its answer.
pub type Incoming = http::Request<Body>;
/// The answer to a call.
pub type Outgoing = http::Response<Body>;

/// Answers calls of one message each.
pub trait Service: Clone + Send + Sync + 'static {
    /// Answers a call, by the path in it.
    fn answer(self, call: Incoming) -> impl Future<Output = Outgoing> + Send;
}

/// Answers a call for one message.
pub async fn unary<Q, A, F>(call: Incoming, answer: impl Fn(Q) -> F + Send) -> Outgoing
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>> + Send,
{
    let answer = service_fn(|request: Request<Q>| {
        let answer = answer(request.into_inner());
        async { answer.await.map(Response::new) }
    });
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default())
        .unary(answer, call)
        .await
}

/// Answers a call for a stream of messages.
pub async fn streaming<A, S>(call: Incoming, messages: S) -> Outgoing
where
    A: Message + 'static,
    S: Stream<Item = A> + Send + 'static,
{
    let mut messages = Some(messages.map(Ok));
    let answer = service_fn(move |_: Request<crate::api::Empty>| {
        let messages = messages
            .take()
            .ok_or_else(|| Status::internal("called twice"));
        async { messages.map(Response::new) }
    });
    let mut server = tonic::server::Grpc::new(ProstCodec::<A, crate::api::Empty>::default());
    server.server_streaming(answer, call).await
}

/// The answer to a call that is not of this service.
#[must_use]
pub fn unknown(call: &Incoming) -> Outgoing {
    let text = format!("{} is no call of this service", call.uri().path());
    Status::new(Code::Unimplemented, text).into_http()
}

/// A server, which ends with this.
#[derive(Debug)]
pub struct Serving {
    _end: oneshot::Sender<()>,
}

/// Answers calls that come over a socket.
pub fn serve(listener: UnixListener, service: impl Service) -> Serving {
    let (end, ended) = oneshot::channel::<()>();
    let service = service_fn(move |call: Incoming| {
        let service = service.clone();
        let answer = async move { Ok::<_, Infallible>(service.answer(call).await) };
        Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    let served = Server::builder().serve_with_incoming_shutdown(
        service,
        UnixListenerStream::new(listener),
        async {
            // Dropped is ended.
            let _ = ended.await;
        },
    );
    tokio::spawn(served);
    Serving { _end: end }
}
