//! The client's own place between object_store and the network: answers are looked at before they become its errors.

use async_trait::async_trait;
use http::Method;
use http::header::{CONTENT_LENGTH, RANGE};
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
    /// The store is at fault, or asks for patience. Only told to clients that do not retry by themselves.
    #[error("the store answered {status}: {body}")]
    Busy {
        /// 408, 425, 429 or 5xx.
        status: u16,
        /// What it said.
        body: String,
    },
    /// A range was asked for, and the answer is not one of a range: a server that knows no ranges, or made a mistake.
    #[error("the store answered 200 with {length} instead of the range that was asked for")]
    Whole {
        /// How much it sent, in words.
        length: String,
    },
}

/// Makes clients whose answers are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connector {
    /// Whether the client retries by itself, for which it must see each answer as it came.
    pub(crate) retries: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (inner, retries) = (ReqwestConnector::default().connect(options)?, self.retries);
        Ok(HttpClient::new(Looking { inner, retries }))
    }
}

#[derive(Debug)]
struct Looking {
    inner: HttpClient,
    retries: bool,
}

/// The most that is read of the body of an answer that says what went wrong.
const LONGEST: usize = 64 << 10;

#[async_trait]
impl HttpService for Looking {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let ranged = request.method() == Method::GET && request.headers().contains_key(RANGE);
        let answer = self.inner.execute(request).await?;
        match answer.status().as_u16() {
            200 if ranged => Err(whole(&answer)),
            404 => missing(answer).await,
            408 | 425 | 429 | 500..=599 if !self.retries => Err(busy(answer).await),
            _ => Ok(answer),
        }
    }
}

/// The error of an answer that is not one of a range.
fn whole(answer: &HttpResponse) -> HttpError {
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.map_or_else(|| "bytes of unknown number".to_owned(), |length| format!("{length} bytes"));
    // Of this kind, object_store does not ask again by itself.
    HttpError::new(HttpErrorKind::Decode, Rejected::Whole { length })
}

/// The error of an answer that the store would not give at another time.
async fn busy(answer: HttpResponse) -> HttpError {
    let (parts, body) = answer.into_parts();
    // What it says is of use in a message only.
    let text = read(body).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&text).chars().take(1000).collect();
    HttpError::new(HttpErrorKind::Unknown, Rejected::Busy { status: parts.status.as_u16(), body })
}

async fn read(mut body: HttpResponseBody) -> Result<Vec<u8>, HttpError> {
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let Some(frame) = body.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            text.extend_from_slice(&data);
        }
    }
    Ok(text)
}

/// Tells a bucket that is missing from an object that is.
async fn missing(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = answer.into_parts();
    let text = read(body).await?;
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
