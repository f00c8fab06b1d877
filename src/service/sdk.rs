//! The calls, made with the AWS SDK.

/// The SDK behind the seam.
#[derive(Debug)]
pub(crate) struct SdkService;
