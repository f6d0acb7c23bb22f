//! The client's own place between object_store and the network: answers are looked at before they become its errors.

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};

/// An answer that object_store's error types would not tell from others.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejected {
    /// The bucket or container itself is not there; an object that is missing is answered with the same number.
    #[error("there is no such bucket or container")]
    NoBucket,
}

/// Makes clients whose answers are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Looking(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Looking(HttpClient);

/// The most that is read of the body of an answer that says "not found".
const LONGEST: usize = 64 << 10;

#[async_trait]
impl HttpService for Looking {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.execute(request).await?;
        if answer.status() == http::StatusCode::NOT_FOUND { missing(answer).await } else { Ok(answer) }
    }
}

/// Tells a bucket that is missing from an object that is.
async fn missing(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, mut body) = answer.into_parts();
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            text.extend_from_slice(&data);
        }
    }
    let code = parts.headers.get("x-ms-error-code").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let said = String::from_utf8_lossy(&text);
    if ["NoSuchBucket", "ContainerNotFound"]
        .iter()
        .any(|name| code == *name || said.contains(&format!("<Code>{name}<")))
    {
        // Of this kind, it is not asked again.
        return Err(HttpError::new(HttpErrorKind::Decode, Rejected::NoBucket));
    }
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(text)))
}
