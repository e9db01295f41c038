//! A crash point before and after each activity: before its effect, and between the effect and the report to Temporal.

use crash_point::crash_point;
use temporalio_sdk::interceptors::{
    ActivityInboundInterceptor, ExecuteActivityInput, ExecuteActivityOutput, Next,
};

/// Ends the process at the activity that the environment names. Only builds with debug assertions register it.
pub(crate) struct ActivityCrashPoints;

impl ActivityInboundInterceptor for ActivityCrashPoints {
    fn execute_activity<'a>(
        &'a self,
        input: ExecuteActivityInput,
        next: Next<'a, ExecuteActivityInput, ExecuteActivityOutput<'a>>,
    ) -> ExecuteActivityOutput<'a> {
        let name = input.activity_info().activity_type.clone();
        Box::pin(async move {
            crash_point(&format!("before {name}"));
            let result = next.run(input).await;
            if result.is_ok() {
                crash_point(&format!("after {name}"));
            }
            result
        })
    }
}
