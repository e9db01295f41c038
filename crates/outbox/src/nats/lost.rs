//! What the broker has lost: it confirmed an event, and has it no more, though a consumer has not taken it in. A power failure
//! takes what was not flushed; a full stream makes room; somebody deletes a stream.

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures::{StreamExt as _, TryStreamExt as _};

use super::consumer::place_name;
use super::{Broker, BrokerError, LANES, lane};
use crate::measure::Missed;

/// Messages that are asked for at once.
const WIDTH: usize = 16;

impl Broker {
    /// Of these events, which `consumer` has not taken in, those that the broker will not bring it. A consumer that has no
    /// place in the stream was never there, and has lost nothing.
    ///
    /// # Errors
    /// [`BrokerError`]: it is not known.
    pub(crate) async fn lost(&self, consumer: &str, missed: Vec<Missed>) -> Result<Vec<Missed>, BrokerError> {
        if missed.is_empty() {
            return Ok(missed);
        }
        let stream = self.stream().await?;
        let mut places = Vec::with_capacity(usize::from(LANES));
        for lane in 0..LANES {
            places.push(place(&stream, place_name(consumer, lane)).await?);
        }
        let passed = missed.into_iter().filter(|event| {
            let place = places.get(usize::from(lane(&event.key))).and_then(Option::as_ref);
            place.is_some_and(|place| has_passed(place, event))
        });
        let (stream, consumer) = (&stream, consumer);
        let lost = futures::stream::iter(passed)
            .map(async |event| Ok::<_, BrokerError>((!has(stream, consumer, &event).await?).then_some(event)))
            .buffer_unordered(WIDTH)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(lost.into_iter().flatten().collect())
    }
}

/// A consumer's place in a lane, if it has one.
async fn place(stream: &Stream, name: String) -> Result<Option<Info>, BrokerError> {
    match stream.consumer_info(&name).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(None),
        Err(error) => Err(BrokerError::Consumer { consumer: name, source: error.into() }),
    }
}

/// Whether the consumer has come past the event. Whoever is behind may still meet it; and what made room for others would make
/// room again, were it told before.
fn has_passed(place: &Info, event: &Missed) -> bool {
    let is_before =
        |sequence: i64| u64::try_from(sequence).is_ok_and(|it| it <= place.delivered.stream_sequence);
    place.num_pending == 0 || event.stream_sequence.is_some_and(is_before)
}

/// Whether the stream has the event where it was put.
async fn has(stream: &Stream, consumer: &str, event: &Missed) -> Result<bool, BrokerError> {
    let Some(sequence) = event.stream_sequence.and_then(|it| u64::try_from(it).ok()) else {
        return Ok(false);
    };
    match stream.get_raw_message(sequence).await {
        // Another's number: the stream was made anew.
        Ok(message) => {
            Ok(message.headers.get(NATS_MESSAGE_ID).is_some_and(|id| id.as_str() == event.event_id))
        }
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(false),
        Err(error) => Err(BrokerError::Consumer { consumer: consumer.to_owned(), source: error.into() }),
    }
}
