//! Turns an error of the SDK into a [`ServiceFailure`].
//!
//! **Why one place.** This is the only file that turns an SDK error into a `ServiceFailure` kind, so the retry rules
//! above it never depend on the SDK's types.

use std::{error::Error, iter};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_kinesis::{
    config::http::HttpResponse,
    error::{ErrorMetadata, ProvideErrorMetadata, SdkError},
};

use crate::{
    error::service::{Action, FailureKind, ServiceFailure},
    util::cut::cut,
};

/// Classifies an error by how a caller reacts to it, and describes it. The error becomes the source.
pub(crate) fn failure<E>(action: Action, error: SdkError<E, HttpResponse>) -> ServiceFailure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let (mut kind, detail) = kind_and_detail(&error);
    if action == Action::GetShardIterator && refuses_an_argument(&error) {
        kind = FailureKind::InvalidPosition;
    }
    let mut failure = ServiceFailure::new(action, kind, detail);
    if lost_the_connection(&error) {
        failure = failure.on_a_lost_connection();
    }
    if is_answer(&error) { failure.summing_up(error) } else { failure.caused_by(error) }
}

/// Whether the service answered with an error: [`kind_and_detail`] then says all of it.
pub(crate) fn is_answer<E>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ServiceError(_))
}

/// Whether the connection broke before a response began. The HTTP client calls that an I/O error if the peer reset the
/// connection, and another one of a known kind if the peer closed it.
fn lost_the_connection<E>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::DispatchFailure(failed)
        if failed.is_io() || failed.as_other().is_some())
}

/// Whether the service refuses an argument. Of an iterator request this is its position: earlier calls have shown that
/// the stream and the shard are valid.
fn refuses_an_argument<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ServiceError(answer) if answer.err().meta().code() == Some("InvalidArgumentException"))
}

/// The kind and the description of an error, for any AWS service. The error itself tells why no response came.
pub(crate) fn kind_and_detail<E>(error: &SdkError<E, HttpResponse>) -> (FailureKind, String)
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(answer) => refused(answer.err().meta(), answer.raw().status().as_u16()),
        SdkError::ResponseError(answer) => unreadable(answer.raw().status().as_u16()),
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) => unsent(error, FailureKind::Unreachable),
        _ => unsent(error, FailureKind::Other),
    }
}

/// The service answered with an error.
fn refused(meta: &ErrorMetadata, status: u16) -> (FailureKind, String) {
    // The SDK calls a success that it cannot read an error of the service, too.
    if meta.code().is_none() && is_success(status) {
        return unreadable(status);
    }
    let kind = meta.code().and_then(|code| of_answer(code, meta.message())).unwrap_or_else(|| of_status(status));
    let detail = match (meta.code(), meta.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, Some(message)) => format!("HTTP {status}: {message}"),
        (None, None) => format!("HTTP {status} without an error code"),
    };
    (kind, cut(&detail).into_owned())
}

/// The kind for an error code and its message. A signature is refused if it does not match, and also if it is too old
/// or too young, as after a pause of the process; the next one is good.
pub(crate) fn of_answer(code: &str, message: Option<&str>) -> Option<FailureKind> {
    let is_late = || {
        let message = message.unwrap_or_default();
        ["Signature expired", "Signature not yet current"].iter().any(|text| message.contains(text))
    };
    match of_code(code) {
        Some(FailureKind::Denied) if is_late() => Some(FailureKind::Credentials),
        kind => kind,
    }
}

/// The response is not one of Kinesis: a gateway answered, or the server closed the connection half-way.
fn unreadable(status: u16) -> (FailureKind, String) {
    (of_status(status), format!("HTTP {status} with an answer that cannot be read"))
}

/// No response arrived. A request that could not be signed ends here too.
fn unsent(error: &(dyn Error + 'static), kind: FailureKind) -> (FailureKind, String) {
    let mut causes = iter::successors(error.source(), |cause| (*cause).source());
    if causes.any(<dyn Error>::is::<CredentialsError>) {
        return (FailureKind::Credentials, "no credentials".to_owned());
    }
    let detail = if kind == FailureKind::Unreachable { "no answer" } else { "the request could not be sent" };
    (kind, detail.to_owned())
}

/// The kind for an error code: the codes of the Kinesis model, of [KMS] behind it, and the [common] ones.
///
/// Two codes mislead. A disabled or missing KMS key is neither a missing stream nor a wrong request, since the same
/// request succeeds once the key is back. `LimitExceeded` is a call rate for most calls, but for `CreateStream` also a
/// quota on shards.
///
/// [KMS]: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html#API_GetRecords_Errors
/// [common]: https://docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html
fn of_code(code: &str) -> Option<FailureKind> {
    let kind = match code {
        "ProvisionedThroughputExceededException"
        | "LimitExceededException"
        | "KMSThrottlingException"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "RequestLimitExceeded"
        | "TooManyRequestsException"
        | "BandwidthLimitExceeded"
        | "SlowDown" => FailureKind::Throttled,
        "ExpiredIteratorException" => FailureKind::IteratorExpired,
        "ResourceNotFoundException" => FailureKind::NotFound,
        "ResourceInUseException" => FailureKind::NotReady,
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | "RequestTimeTooSkewed" => {
            FailureKind::Credentials
        }
        "AccessDenied"
        | "AccessDeniedException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSignature"
        | "InvalidSignatureException"
        | "KMSAccessDeniedException"
        | "KMSOptInRequired"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => FailureKind::Denied,
        "InternalFailure"
        | "InternalFailureException"
        | "InternalServerError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException" => FailureKind::Unavailable,
        "ExpiredNextTokenException"
        | "InvalidAction"
        | "InvalidArgumentException"
        | "InvalidParameterCombination"
        | "InvalidParameterValue"
        | "MissingParameter"
        | "SerializationException"
        | "UnknownOperationException"
        | "ValidationError"
        | "ValidationException" => FailureKind::Rejected,
        "KMSDisabledException" | "KMSInvalidStateException" | "KMSNotFoundException" => FailureKind::KeyUnusable,
        _ => return None,
    };
    Some(kind)
}

/// The kind for an HTTP status, if there is no known error code. A bare 503 counts as an outage and not as a throttle,
/// because throttles are not reported and an outage must be.
fn of_status(status: u16) -> FailureKind {
    match status {
        429 => FailureKind::Throttled,
        401 | 403 => FailureKind::Denied,
        413 => FailureKind::Rejected,
        500.. => FailureKind::Unavailable,
        status if is_success(status) => FailureKind::Unreadable,
        _ => FailureKind::Other,
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

#[cfg(test)]
mod tests {
    use std::io;

    use aws_sdk_kinesis::{error::ConnectorError, operation::get_records::GetRecordsError};
    use aws_smithy_types::{body::SdkBody, retry::ErrorKind};

    use super::*;
    use crate::error::chain::Chain;

    type Failed = SdkError<GetRecordsError, HttpResponse>;

    fn response(status: u16) -> HttpResponse {
        HttpResponse::new(status.try_into().unwrap(), SdkBody::empty())
    }

    fn answered(status: u16, meta: ErrorMetadata) -> ServiceFailure {
        failure(Action::GetRecords, Failed::service_error(GetRecordsError::generic(meta), response(status)))
    }

    fn with_code(code: &str) -> ServiceFailure {
        answered(400, ErrorMetadata::builder().code(code).message("why").build())
    }

    fn dispatch(error: ConnectorError) -> ServiceFailure {
        failure(Action::GetRecords, Failed::dispatch_failure(error))
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Around(&'static str, #[source] io::Error);

    #[test]
    fn each_code_has_the_kind_by_which_a_caller_reacts() {
        let table = [
            (FailureKind::Throttled, "ProvisionedThroughputExceededException LimitExceededException"),
            (FailureKind::Throttled, "KMSThrottlingException ThrottlingException SlowDown TooManyRequestsException"),
            (FailureKind::IteratorExpired, "ExpiredIteratorException"),
            (FailureKind::NotFound, "ResourceNotFoundException"),
            (FailureKind::NotReady, "ResourceInUseException"),
            (FailureKind::Denied, "AccessDenied AccessDeniedException KMSAccessDeniedException KMSOptInRequired"),
            (FailureKind::Credentials, "ExpiredToken ExpiredTokenException RequestExpired RequestTimeTooSkewed"),
            (FailureKind::Denied, "UnrecognizedClientException InvalidSignatureException"),
            (FailureKind::Denied, "MissingAuthenticationTokenException InvalidClientTokenId"),
            (FailureKind::Rejected, "InvalidArgumentException ValidationException SerializationException"),
            (FailureKind::Rejected, "ExpiredNextTokenException UnknownOperationException"),
            (FailureKind::KeyUnusable, "KMSDisabledException KMSInvalidStateException KMSNotFoundException"),
            (
                FailureKind::Unavailable,
                "InternalFailureException InternalFailure InternalServerError ServiceUnavailable",
            ),
            (FailureKind::Other, "NeverHeardOfException"),
        ];
        for (kind, code) in table.iter().flat_map(|(kind, codes)| codes.split(' ').map(move |code| (kind, code))) {
            assert_eq!(with_code(code).kind(), *kind, "{code}");
        }
    }

    #[test]
    fn a_response_without_a_known_code_is_classified_by_its_status() {
        let bare = |status| answered(status, ErrorMetadata::builder().build()).kind();
        assert_eq!(bare(429), FailureKind::Throttled);
        assert_eq!(bare(403), FailureKind::Denied);
        assert_eq!(bare(413), FailureKind::Rejected);
        for (status, kind) in [
            (200, FailureKind::Unreadable),
            (400, FailureKind::Other),
            (404, FailureKind::Other),
            (500, FailureKind::Unavailable),
        ] {
            assert_eq!(bare(status), kind, "{status}");
        }
        assert_eq!((bare(502), bare(503)), (FailureKind::Unavailable, FailureKind::Unavailable));
        let unreadable = Failed::response_error("unexpected token '<'", response(429));
        assert_eq!(failure(Action::GetRecords, unreadable).kind(), FailureKind::Throttled);
    }

    #[test]
    fn a_failure_carries_the_code_and_message_of_the_service() {
        let text = |status, meta| answered(status, meta).to_string();
        let meta = ErrorMetadata::builder;
        let denied = meta().code("AccessDeniedException").message("User: x is not authorized").build();
        assert_eq!(text(400, denied), "kinesis:GetRecords failed: AccessDeniedException: User: x is not authorized");
        assert_eq!(text(400, meta().code("Odd").build()), "kinesis:GetRecords failed: Odd");
        assert_eq!(text(400, meta().message("no").build()), "kinesis:GetRecords failed: HTTP 400: no");
        assert_eq!(text(500, meta().build()), "kinesis:GetRecords failed: HTTP 500 without an error code");
        let long = answered(400, meta().code("Odd").message("x".repeat(300_000)).build());
        let said = [long.to_string(), format!("{long:?}"), long.source().unwrap().to_string()];
        assert!(said.iter().all(|said| said.len() < 2_000), "{said:?}");
        let gateway = Failed::response_error("unexpected token '<'", response(502));
        assert_eq!(
            failure(Action::PutRecord, gateway).to_string(),
            "kinesis:PutRecord failed: HTTP 502 with an answer that cannot be read"
        );
    }

    #[test]
    fn the_sources_hold_the_cause_of_a_missing_response() {
        let refused = Around("tcp connect error", io::Error::other("Connection refused (os error 111)"));
        let refused = dispatch(ConnectorError::io(Around("client error (Connect)", io::Error::other(refused)).into()));
        assert_eq!(refused.kind(), FailureKind::Unreachable);
        assert_eq!(
            Chain(&refused).to_string(),
            "kinesis:GetRecords failed: no answer: dispatch failure: io error: client error (Connect): tcp connect error: \
             Connection refused (os error 111)"
        );

        let late = failure(Action::ListShards, Failed::timeout_error("operation timeout occurred after 30s"));
        assert_eq!(late.kind(), FailureKind::Unreachable);
        assert_eq!(late.to_string(), "kinesis:ListShards failed: no answer");
        assert!(Chain(&late).to_string().ends_with(": operation timeout occurred after 30s"));

        let unmade = failure(Action::PutRecord, Failed::construction_failure("no such field"));
        assert_eq!(unmade.kind(), FailureKind::Other);
        assert_eq!(unmade.to_string(), "kinesis:PutRecord failed: the request could not be sent");
        assert!(Chain(&unmade).to_string().ends_with(": no such field"));
    }

    // H7
    #[test]
    fn only_an_invalid_argument_of_an_iterator_request_is_an_invalid_position() {
        let kind = |action, code| {
            let meta = ErrorMetadata::builder().code(code).message("StartingSequenceNumber 49 is invalid").build();
            failure(action, Failed::service_error(GetRecordsError::generic(meta), response(400))).kind()
        };
        assert_eq!(kind(Action::GetShardIterator, "InvalidArgumentException"), FailureKind::InvalidPosition);
        assert_eq!(kind(Action::GetRecords, "InvalidArgumentException"), FailureKind::Rejected);
        for code in ["ValidationException", "SerializationException", "InvalidParameterValue"] {
            assert_eq!(kind(Action::GetShardIterator, code), FailureKind::Rejected, "{code}");
        }
        let bare = ErrorMetadata::builder().build();
        let gateway = Failed::service_error(GetRecordsError::generic(bare), response(413));
        assert_eq!(failure(Action::GetShardIterator, gateway).kind(), FailureKind::Rejected);
    }

    // L3
    #[test]
    fn missing_credentials_are_named_and_may_come_later() {
        let none = CredentialsError::not_loaded("no providers in chain provided credentials");
        let denied = dispatch(ConnectorError::other(none.into(), None));
        assert_eq!(denied.kind(), FailureKind::Credentials);
        assert_eq!(
            Chain(&denied).to_string(),
            "kinesis:GetRecords failed: no credentials: dispatch failure: other: the credential provider was not enabled: \
             no providers in chain provided credentials"
        );
    }

    // R10, L3
    #[test]
    fn a_signature_that_is_too_old_or_too_young_is_no_wrong_one() {
        let kind = |code: &str, message: &str| {
            answered(400, ErrorMetadata::builder().code(code).message(message).build()).kind()
        };
        let expired = "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z";
        let young = "Signature not yet current: 20260101T001000Z is still later than 20260101T000500Z";
        let wrong = "The request signature we calculated does not match the signature you provided.";
        for code in ["InvalidSignatureException", "SignatureDoesNotMatch"] {
            assert_eq!(kind(code, expired), FailureKind::Credentials);
            assert_eq!(kind(code, young), FailureKind::Credentials);
            assert_eq!(kind(code, wrong), FailureKind::Denied);
        }
    }

    // R10
    #[test]
    fn a_connection_that_breaks_before_the_response_is_told_apart_from_a_timeout() {
        let closed = |kind| ConnectorError::other(io::Error::other("incomplete message").into(), kind);
        let table = [
            (dispatch(ConnectorError::io(io::Error::other("connection reset by peer").into())), true),
            (dispatch(closed(Some(ErrorKind::TransientError))), true),
            (dispatch(closed(None)), false),
            (dispatch(ConnectorError::timeout(io::Error::other("late").into())), false),
            (failure(Action::GetRecords, Failed::timeout_error("late")), false),
            (failure(Action::GetRecords, Failed::response_error("cut off", response(200))), false),
            (with_code("InternalFailure"), false),
        ];
        for (failure, is_lost) in table {
            assert_eq!(failure.is_lost_connection(), is_lost, "{failure:?}");
        }
    }

    // X3
    #[test]
    fn the_error_of_the_sdk_stays_the_source() {
        let failure = with_code("AccessDeniedException");
        assert!(failure.source().unwrap().is::<Failed>());
    }
}
