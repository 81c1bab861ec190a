// SPDX-License-Identifier: MIT OR Apache-2.0
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Random;

/** Echo over parallel connections with selectors: `server PORT` or `client PORT`. The client fails if bytes differ. */
class Echo {
    static final int CONNECTIONS = 6;
    static final int BYTES = 2_000_000;

    /** One connection: bytes that were received and not sent yet, and the client's expectations. */
    static final class End {
        final ByteBuffer pending = ByteBuffer.allocateDirect(200_000);
        final Random out;
        final Random in;
        final Random sizes = new Random(7);
        int sent;
        int received;

        End(long seed) {
            out = new Random(seed);
            in = new Random(seed);
        }
    }

    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        try (Selector selector = Selector.open()) {
            if (words[0].equals("server")) {
                ServerSocketChannel listener = ServerSocketChannel.open();
                listener.bind(new InetSocketAddress("127.0.0.1", port)).configureBlocking(false);
                listener.register(selector, SelectionKey.OP_ACCEPT);
            } else {
                for (int number = 0; number < CONNECTIONS; number++) {
                    SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
                    channel.configureBlocking(false);
                    End end = new End(number);
                    channel.register(selector, SelectionKey.OP_READ | SelectionKey.OP_WRITE, end);
                }
            }
            while (words[0].equals("server") || !selector.keys().isEmpty()) {
                selector.select();
                for (SelectionKey key : selector.selectedKeys()) {
                    handle(key, selector, words[0].equals("client"));
                }
                selector.selectedKeys().clear();
                selector.selectNow();
            }
        }
    }

    static void handle(SelectionKey key, Selector selector, boolean isClient) throws Exception {
        if (key.isAcceptable()) {
            SocketChannel channel = ((ServerSocketChannel) key.channel()).accept();
            channel.configureBlocking(false);
            channel.register(selector, SelectionKey.OP_READ, new End(0));
            return;
        }
        SocketChannel channel = (SocketChannel) key.channel();
        End end = (End) key.attachment();
        if (isClient) {
            if (key.isWritable()) {
                send(key, channel, end);
            }
            if (key.isReadable()) {
                check(key, channel, end);
            }
            return;
        }
        int got = channel.read(end.pending);
        end.pending.flip();
        channel.write(end.pending);
        boolean isSent = !end.pending.hasRemaining();
        end.pending.compact();
        if (got < 0 && isSent) {
            channel.close();
            return;
        }
        key.interestOps(isSent ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
    }

    static void send(SelectionKey key, SocketChannel channel, End end) throws Exception {
        if (end.pending.position() == 0) {
            int bound = end.sizes.nextInt(10) == 0 ? 150_000 : 400;
            int len = Math.min(BYTES - end.sent, 1 + end.sizes.nextInt(bound));
            for (int index = 0; index < len; index++) {
                end.pending.put((byte) end.out.nextInt());
            }
        }
        end.pending.flip();
        end.sent += channel.write(end.pending);
        boolean isAll = !end.pending.hasRemaining() && end.sent == BYTES;
        end.pending.compact();
        if (isAll) {
            channel.shutdownOutput();
            key.interestOps(SelectionKey.OP_READ);
        }
    }

    static void check(SelectionKey key, SocketChannel channel, End end) throws Exception {
        ByteBuffer bytes = ByteBuffer.allocate(1 + end.sizes.nextInt(70_000));
        int got = channel.read(bytes);
        if (got < 0) {
            if (end.received != BYTES) {
                throw new IllegalStateException(end.received + " bytes came back");
            }
            channel.close();
            return;
        }
        bytes.flip();
        while (bytes.hasRemaining()) {
            if (bytes.get() != (byte) end.in.nextInt()) {
                throw new IllegalStateException("a byte differs");
            }
        }
        end.received += got;
    }
}
