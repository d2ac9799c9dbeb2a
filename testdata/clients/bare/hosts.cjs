// For the bare run: every name ending in .test is 127.0.0.1.
const dns = require('dns');
const lookup = dns.lookup;
dns.lookup = (name, options, callback) =>
  lookup(name.endsWith('.test') ? '127.0.0.1' : name, options, callback);
