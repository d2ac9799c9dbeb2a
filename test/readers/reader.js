// Answers questions on lines, see readers.go. It ends with its standard input.
const refused = {Accepted: false};

function unescape(path) {
  const out = [];
  for (let i = 0; i < path.length; i++) {
    if (path[i] === '%' && /^[0-9a-fA-F]{2}/.test(path.slice(i + 1))) {
      out.push(parseInt(path.slice(i + 1, i + 3), 16));
      i += 2;
    } else {
      out.push(path.charCodeAt(i));
    }
  }
  return Buffer.from(out).toString('base64');
}

function url(text) {
  let u;
  try {
    u = new URL(text);
  } catch {
    return refused;
  }
  return {
    Accepted: true, Host: u.hostname, Port: u.port === '' ? 80 : Number(u.port),
    Path: u.pathname, Query: u.search.slice(1), Decoded: unescape(u.pathname),
  };
}

function form(v) {
  switch (typeof v) {
  case 'boolean':
    return String(v);
  case 'number': {
    const b = Buffer.alloc(8);
    b.writeDoubleBE(v + 0);
    return 'n' + b.toString('hex');
  }
  case 'string':
    return 's' + Buffer.from(v).toString('hex');
  }
  if (v === null) {
    return 'null';
  }
  if (Array.isArray(v)) {
    return ['list', ...v.map(form)];
  }
  const members = Object.keys(v).map(name => [form(name), form(v[name])]);
  return ['object', ...members.sort((a, b) => a[0] < b[0] ? -1 : 1)];
}

function value(text) {
  try {
    return {Accepted: true, Form: form(JSON.parse(text))};
  } catch {
    return refused;
  }
}

require('readline').createInterface({input: process.stdin}).on('line', line => {
  const q = JSON.parse(Buffer.from(line, 'base64'));
  const raw = Buffer.from(q.text, 'base64');
  const answer = q.kind === 'json' ? value(raw.toString()) : url(raw.toString('latin1'));
  process.stdout.write(JSON.stringify(answer) + '\n');
});
