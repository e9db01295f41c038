//! What the broker has lost: it confirmed an event, and will not bring it to a consumer that has not taken it in. A power failure
//! takes what was not flushed; a full stream makes room; somebody deletes a stream.

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures::{StreamExt as _, TryStreamExt as _};

use super::consumer::place_name;
use super::{Broker, BrokerError, LANES, lane};
use crate::mend::Missed;

/// Messages that are asked for at once.
const WIDTH: usize = 16;

/// How far a consumer has come in the stream, at one moment.
pub(crate) struct Standing {
    consumer: String,
    stream: Stream,
    /// In each lane, where it has a place.
    places: Vec<Option<Info>>,
}

impl Broker {
    /// How far a consumer has come.
    ///
    /// # Errors
    /// [`BrokerError`]: it is not known.
    pub(crate) async fn standing(&self, consumer: &str) -> Result<Standing, BrokerError> {
        let stream = self.stream().await?;
        let mut places = Vec::with_capacity(usize::from(LANES));
        for lane in 0..LANES {
            places.push(place(&stream, place_name(consumer, lane)).await?);
        }
        Ok(Standing { consumer: consumer.to_owned(), stream, places })
    }
}

impl Standing {
    /// Of these events, which the consumer has not marked as taken in since it stood so, those that it will not be brought. A
    /// consumer that has no place in the stream was never there, and has lost nothing.
    ///
    /// # Errors
    /// [`BrokerError`]: it is not known.
    pub(crate) async fn lost(&self, missed: Vec<Missed>) -> Result<Vec<Missed>, BrokerError> {
        let passed = missed.into_iter().filter_map(|event| {
            let place = self.places.get(usize::from(lane(&event.key)))?.as_ref()?;
            let sequence = event.stream_sequence.and_then(|it| u64::try_from(it).ok());
            self.has_passed(place, sequence).then_some((place, sequence, event))
        });
        let lost = futures::stream::iter(passed)
            .map(async |(place, sequence, event)| {
                let comes = match sequence {
                    // Acknowledged, and not taken in: the consumer's place outlived messages whose numbers were given again.
                    Some(sequence) if sequence <= place.ack_floor.stream_sequence => false,
                    Some(sequence) => self.has(sequence, &event).await?,
                    None => false,
                };
                Ok::<_, BrokerError>((!comes).then_some(event))
            })
            .buffer_unordered(WIDTH)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(lost.into_iter().flatten().collect())
    }

    /// Whether the consumer has come past this number. Whoever is behind may still meet it; and what made room for others would
    /// make room again, were it told before.
    fn has_passed(&self, place: &Info, sequence: Option<u64>) -> bool {
        // Beyond the end are numbers of a stream that was there before this one.
        let is_past =
            |it| it <= place.delivered.stream_sequence || it > self.stream.cached_info().state.last_sequence;
        place.num_pending == 0 || sequence.is_some_and(is_past)
    }

    /// Whether the stream has the event where it was put.
    async fn has(&self, sequence: u64, event: &Missed) -> Result<bool, BrokerError> {
        match self.stream.get_raw_message(sequence).await {
            // Another's number: the stream was made anew.
            Ok(message) => {
                Ok(message.headers.get(NATS_MESSAGE_ID).is_some_and(|id| id.as_str() == event.event_id))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => {
                Err(BrokerError::Consumer { consumer: self.consumer.clone(), source: error.into() })
            }
        }
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
