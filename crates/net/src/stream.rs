//! A connection's bytes, plain or in TLS, and the options of its socket.

use crate::config::NetworkLimits;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The TLS session that a proof is bound to; zeros on a plain connection.
pub(crate) type Binding = [u8; 32];

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum SocketStream {
    /// A plain TCP connection.
    Plain(TcpStream),
    /// A connection that is encrypted with TLS.
    Secured(Box<TlsStream<TcpStream>>),
}

impl SocketStream {
    pub fn binding(&self) -> io::Result<Binding> {
        let SocketStream::Secured(stream) = self else { return Ok([0; 32]) };
        let label = b"EXPORTER-shoal-handshake";
        let exported = match &**stream {
            TlsStream::Client(stream) => {
                stream.get_ref().1.export_keying_material([0; 32], label, None)
            }
            TlsStream::Server(stream) => {
                stream.get_ref().1.export_keying_material([0; 32], label, None)
            }
        };
        exported.map_err(io::Error::other)
    }
}

/// Sets `TCP_NODELAY`, and the kernel's timeouts for an unresponsive other end, so that no timer is needed
/// here.
pub(crate) fn set_options(socket: &TcpStream, limits: &NetworkLimits) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let every = (limits.silence_max / 4).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(every).with_interval(every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.silence_max))?;
    Ok(())
}

impl AsyncRead for SocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            SocketStream::Secured(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SocketStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            SocketStream::Secured(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SocketStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            SocketStream::Secured(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            SocketStream::Secured(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SocketStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            SocketStream::Secured(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
