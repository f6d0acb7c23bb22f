//! Work on other threads.

use tokio::task::JoinSet;

use crate::Result;

/// What tasks give, in no order. A panic of one goes on here.
///
/// # Errors
/// The first of theirs; the others are ended.
pub(crate) async fn joined<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        all.push(match done {
            Ok(done) => done?,
            Err(source) => match source.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(source) => return Err(forebay_versioning::Error::Cancelled { source }.into()),
            },
        });
    }
    Ok(all)
}
