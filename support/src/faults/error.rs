//! The errors that rules respond with.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::wire;

/// An error of the service: its type and its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwsError {
    code: &'static str,
    status: StatusCode,
}

impl AwsError {
    /// The message of an injected error.
    pub(super) const MESSAGE: &str = "injected by the fault layer";

    /// A read or write limit of a shard is exceeded.
    pub const THROTTLED: Self = Self::rejected("ProvisionedThroughputExceededException");
    /// A call rate of the account is exceeded.
    pub const LIMIT_EXCEEDED: Self = Self::rejected("LimitExceededException");
    /// The shard iterator is too old.
    pub const EXPIRED_ITERATOR: Self = Self::rejected("ExpiredIteratorException");
    /// The `ListShards` token is too old.
    pub const EXPIRED_TOKEN: Self = Self::rejected("ExpiredNextTokenException");
    /// The credentials do not allow the call.
    pub const ACCESS_DENIED: Self = Self::rejected("AccessDeniedException");
    /// An argument is wrong, for example a sequence number of another stream.
    pub const INVALID_ARGUMENT: Self = Self::rejected("InvalidArgumentException");
    /// No such stream or shard.
    pub const NOT_FOUND: Self = Self::rejected("ResourceNotFoundException");
    /// The stream is not in the state that the call needs.
    pub const IN_USE: Self = Self::rejected("ResourceInUseException");
    /// The service itself failed.
    pub const INTERNAL_FAILURE: Self = Self { code: "InternalFailure", status: StatusCode::INTERNAL_SERVER_ERROR };
    /// The service is down.
    pub const UNAVAILABLE: Self = Self { code: "ServiceUnavailable", status: StatusCode::SERVICE_UNAVAILABLE };

    /// An error with which the service rejects a call (HTTP 400).
    #[must_use]
    pub const fn rejected(code: &'static str) -> Self {
        Self { code, status: StatusCode::BAD_REQUEST }
    }

    /// The type of the error, as the service spells it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.code
    }
}

impl IntoResponse for AwsError {
    fn into_response(self) -> Response {
        let body = json!({ "__type": self.code, "message": Self::MESSAGE });
        wire::answer(self.status, body.to_string())
    }
}
