// SPDX-License-Identifier: MIT OR Apache-2.0
// Echo over parallel connections: `echo.js server PORT` or `echo.js client PORT`. The client ends with status 1
// if the bytes differ.
const crypto = require('crypto');
const net = require('net');

const CONNECTIONS = 6;
const CHUNKS = 300;
const [role, port] = [process.argv[2], Number(process.argv[3])];

function serve() {
  net.createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)).listen(port, '127.0.0.1');
}

function connect(number) {
  return new Promise((resolve, reject) => {
    const [sent, received] = [crypto.createHash('sha256'), crypto.createHash('sha256')];
    let [left, total] = [CHUNKS, 0];
    const socket = net.connect(port, '127.0.0.1');
    const send = () => {
      while (left > 0) {
        left -= 1;
        // Lengths from a byte to some times the buffer of a socket.
        const bytes = crypto.randomBytes(1 + ((left * 7919 + number * 104729) % (left % 10 === 0 ? 90000 : 700)));
        total += bytes.length;
        sent.update(bytes);
        // Every third chunk waits for the others, so both short and long bursts occur.
        if ((!socket.write(bytes) || left % 3 === 0) && left > 0) return;
      }
      socket.end();
    };
    socket.on('connect', send);
    socket.on('drain', send);
    let got = 0;
    socket.on('data', (bytes) => {
      received.update(bytes);
      got += bytes.length;
      if (got === total && left > 0) send();
    });
    socket.on('error', reject);
    socket.on('end', () => resolve(sent.digest('hex') === received.digest('hex')));
  });
}

if (role === 'server') {
  serve();
} else {
  const all = Array.from({ length: CONNECTIONS }, (_, number) => connect(number));
  Promise.all(all).then((equal) => process.exit(equal.every((same) => same) ? 0 : 1));
}
