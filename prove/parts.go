package main

// parts are run in this order.
var parts = []part{}
