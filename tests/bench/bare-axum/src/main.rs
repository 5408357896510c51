//! An axum handler that reads the request's body and answers a constant, and nothing else.
//!
//! `bare-axum`: listens on a free port of 127.0.0.1 and prints it. Every path takes GET and POST; the
//! answer is as long as a task's id in JSON.

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::get;
use axum::serve::ListenerExt as _;

/// What a create of the gateway answers looks like this.
const ANSWER: &str = "\"0199d0d0-0000-7000-8000-000000000000\"";

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let handler = async |body: Bytes| {
        std::hint::black_box(body);
        ([(header::CONTENT_TYPE, "application/json")], ANSWER)
    };
    let routes = get(handler).post(handler);
    let app = Router::new().route("/{*path}", routes);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let listener = listener.tap_io(|stream| {
        // As the gateway does.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}
