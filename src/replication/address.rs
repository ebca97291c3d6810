//! Addresses of endpoints in what crosses VMs: a form, and as many bytes as the form has.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::wire::Reader;

/// How many bytes an address takes, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// 4 bytes and the port.
    V4 = 1,
    /// 16 bytes and the port.
    V6 = 2,
    /// The same, then flow info and scope: only where one of them is set.
    Scoped = 3,
}

impl Form {
    pub(super) fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(v6) if (v6.flowinfo(), v6.scope_id()) == (0, 0) => Self::V6,
            SocketAddr::V6(_) => Self::Scoped,
        }
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        [Self::V4, Self::V6, Self::Scoped]
            .into_iter()
            .find(|form| *form as u8 == bits)
    }
}

/// Writes `address` without its form.
pub(super) fn write(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(v4) => out.extend_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => out.extend_from_slice(&v6.ip().octets()),
    }
    out.extend_from_slice(&address.port().to_le_bytes());
    if let (Form::Scoped, SocketAddr::V6(v6)) = (Form::of(address), address) {
        out.extend_from_slice(&v6.flowinfo().to_le_bytes());
        out.extend_from_slice(&v6.scope_id().to_le_bytes());
    }
}

/// Reads an address of `form`; `None` where another form would be the shorter one for it.
pub(super) fn read(reader: &mut Reader<'_>, form: Form) -> Option<SocketAddr> {
    if form == Form::V4 {
        let ip = Ipv4Addr::from(reader.array::<4>()?);
        return Some(SocketAddrV4::new(ip, reader.u16()?).into());
    }
    let ip = Ipv6Addr::from(reader.array::<16>()?);
    let port = reader.u16()?;
    let (flow_info, scope) = if form == Form::Scoped {
        (reader.u32()?, reader.u32()?)
    } else {
        (0, 0)
    };
    let address = SocketAddrV6::new(ip, port, flow_info, scope).into();
    (Form::of(address) == form).then_some(address)
}

/// Writes `address` with a byte for its form before it.
pub(super) fn write_tagged(out: &mut Vec<u8>, address: SocketAddr) {
    out.push(Form::of(address) as u8);
    write(out, address);
}

/// Reads what [`write_tagged`] wrote.
pub(super) fn read_tagged(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let form = Form::from_bits(reader.u8()?)?;
    read(reader, form)
}

/// The most bytes [`write_tagged`] writes.
pub(super) const MAX_TAGGED_BYTES: usize = 1 + 16 + 2 + 4 + 4;

/// The fewest.
pub(super) const MIN_TAGGED_BYTES: usize = 1 + 4 + 2;
