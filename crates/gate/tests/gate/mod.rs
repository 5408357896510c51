//! A gate that does what a test tells it.

use std::pin::Pin;
use std::time::Duration;

use pkgtool_gate::address::GateAddress;
use pkgtool_gate::protocol::gate_server::{Gate as GateService, GateServer};
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    ClientRequestProto, ClientResponseProto, ContentProto, ContentRequestProto, GateToServiceProto,
    HeartBeatProto, ServiceToGateProto, StartServingProto, gate_to_service_proto as from_gate,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A gate that runs until it is dropped.
pub(crate) struct Gate {
    pub(crate) address: GateAddress,
    instances: mpsc::Receiver<Instance>,
    task: tokio::task::JoinHandle<()>,
}

/// An instance that announced itself.
pub(crate) struct Instance {
    pub(crate) start: StartServingProto,
    to_service: mpsc::Sender<GateToServiceProto>,
    answers: mpsc::Receiver<ServiceToGateProto>,
}

impl Gate {
    pub(crate) async fn start() -> Self {
        Self::start_as("127.0.0.1", tonic::transport::Server::builder()).await
    }

    /// Starts a gate that instances call by this name.
    pub(crate) async fn start_as(name: &str, mut server: tonic::transport::Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (announced, instances) = mpsc::channel(8);
        let serving = server
            .add_service(GateServer::new(Announcing(announced)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move {
            serving.await.expect("it serves");
        });
        Self {
            address: format!("{name}:{port}").parse().expect("it is an address"),
            instances,
            task,
        }
    }

    /// Returns the next instance that announces itself.
    pub(crate) async fn instance(&mut self) -> Instance {
        let next = timeout(PATIENCE, self.instances.recv()).await;
        next.expect("an instance comes in time")
            .expect("the gate runs")
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Instance {
    pub(crate) async fn send(&self, request_id: i64, body: from_gate::Body) {
        let message = GateToServiceProto {
            request_id,
            body: Some(body),
            ..GateToServiceProto::default()
        };
        // The instance may have left.
        let _ = self.to_service.send(message).await;
    }

    /// Returns the next message.
    pub(crate) async fn any(&mut self) -> ServiceToGateProto {
        let next = timeout(PATIENCE, self.answers.recv()).await;
        next.expect("an answer comes in time")
            .expect("the instance is there")
    }

    /// Returns the next message, without heartbeats.
    pub(crate) async fn answer(&mut self) -> ServiceToGateProto {
        loop {
            let next = self.any().await;
            if !matches!(next.body, Some(Body::HeartBeat(_))) {
                return next;
            }
        }
    }

    /// Returns the number of a request that failed, and the code.
    pub(crate) async fn error(&mut self) -> (i64, String) {
        let answer = self.answer().await;
        match answer.body {
            Some(Body::Error(error)) => (answer.request_id, error.code),
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// Hands instances to the test.
struct Announcing(mpsc::Sender<Instance>);

#[tonic::async_trait]
impl GateService for Announcing {
    async fn health_check(
        &self,
        _: Request<HeartBeatProto>,
    ) -> Result<Response<HeartBeatProto>, Status> {
        Ok(Response::new(HeartBeatProto {
            status: "Ok".to_owned(),
            interval: 0,
        }))
    }

    type processAsyncStream =
        Pin<Box<dyn Stream<Item = Result<GateToServiceProto, Status>> + Send>>;

    async fn process_async(
        &self,
        request: Request<Streaming<ServiceToGateProto>>,
    ) -> Result<Response<Self::processAsyncStream>, Status> {
        let mut answers = request.into_inner();
        let first = answers.message().await?;
        let Some(Body::StartServing(start)) = first.and_then(|first| first.body) else {
            return Err(Status::invalid_argument("expected startServing first"));
        };
        let (to_service, mut messages) = mpsc::channel(8);
        let (to_test, from_service) = mpsc::channel(512);
        let (to_response, response) = mpsc::channel(8);
        let instance = Instance {
            start,
            to_service,
            answers: from_service,
        };
        let announced = self.0.send(instance).await;
        announced.map_err(|_| Status::unavailable("the test is over"))?;
        // The connection ends when the instance or the test leaves.
        tokio::spawn(async move {
            loop {
                let goes_on = tokio::select! {
                    message = messages.recv() => match message {
                        Some(message) => to_response.send(Ok(message)).await.is_ok(),
                        None => false,
                    },
                    answer = answers.message() => match answer {
                        Ok(Some(answer)) => to_test.send(answer).await.is_ok(),
                        _ => false,
                    },
                };
                if !goes_on {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(response))))
    }

    type contentStream = Pin<Box<dyn Stream<Item = Result<ContentProto, Status>> + Send>>;

    async fn content(
        &self,
        _: Request<ContentRequestProto>,
    ) -> Result<Response<Self::contentStream>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    async fn process(
        &self,
        _: Request<ClientRequestProto>,
    ) -> Result<Response<ClientResponseProto>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }

    type processResponseStreamStream =
        Pin<Box<dyn Stream<Item = Result<ClientResponseProto, Status>> + Send>>;

    async fn process_response_stream(
        &self,
        _: Request<ClientRequestProto>,
    ) -> Result<Response<Self::processResponseStreamStream>, Status> {
        Err(Status::unimplemented("no test asks for it"))
    }
}
