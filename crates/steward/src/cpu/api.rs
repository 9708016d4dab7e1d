//! Reservations in the words of the API.

use libsteward::api;
use steward_core::cpu::reservation::Reservation;

/// A reservation as the API has it.
pub fn to_api(reservation: Reservation) -> api::Reservation {
    api::Reservation { budget_ns: reservation.budget_ns, period_ns: reservation.period_ns }
}
